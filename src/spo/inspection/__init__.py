"""One decision at a time, in a form to look at: what an agent considered, and why it chose its action.

    settings    the settings of a decision that can be changed, with the values that they can take
    subject     one agent of a run, and its compiled decisions
    records     a decision as plain data: policy, particles or tree
    pictures    states as pictures
    episode     one episode with all of its decisions
    session     an episode that is played by hand, for the live page
    html        the page as one HTML file
    server      the live page; `guarding` has the rules for its requests

`protocol` describes the data that the page reads, and the requests of the live page.
"""
