"""The data that the page reads, and the requests of the live page.

Numbers have four significant digits. NaN and infinity are null. An action is a whole number, or a list of numbers if
actions are continuous, always as the environment takes it.

# The document

    format      FORMAT, the version of this description
    version     version of spo
    run         {name, task, algorithm, which: "best" | "last", env_steps, member}
    actions     {kind: "discrete", names: [text]} | {kind: "continuous", size, low, high}; a bound
                is a number, or a list with one per dimension
    method      null | {num_root_candidates: different first actions | null: one per particle, ess_threshold | null,
                weighting} of a search with particles
    settings    settings of the run itself by name, see `controls`
    controls    [{name, label, help, kind: "choice", values: [...]} | {..., kind: "number", values: [low, high]}]; null
                as a number stands for the agent's own value
    seed        random seed of the episode
    steps       [step]: the start of the episode and the state after each action
    pictures    {name: picture}
    live        absent in a file. On the live page {starts: null | {label, low, high}, session: name}

    picture     {kind: "png", png: base64, width, height} | {kind: "cube" | "sokoban", size, cells: one digit per cell}
    step        {index, picture: name | null, observation: null | [{name, shape, values | null}], mask: null | [bool],
                 metrics: {name: number}, return: sum of rewards so far, end: null | "terminated" | "truncated",
                 decision: null | decision, taken: the action that was taken here, or null, reward: of it, or null}
    decision    {settings, seed, action, value: V(s), temperature | null: in the rewards that the agent learns with,
                 policy, search: null | particles | tree, seconds, compile_seconds: 0 if the program was there;
                 live: search_id}
    policy      {kind: "discrete", before: [probability] | null, after: [probability] | null}
                {kind: "continuous", before: null | [[density in each of 32 bins from low to high] per dimension],
                 after: null | {actions: [[number per dimension]], weights: [number]}}

    particles   {kind: "particles", valid, num_particles: N, horizon: h, value: mean return of the particles,
                 [h]:     ess, live, root_actions: distinct first actions after any resample there, resampled: after
                          this depth
                 [h][N]:  parent: index at the depth above, action, reward, particle_value, ended, weight: sum 1 per
                          depth, before any resample
                 picture: [h][N] names | null
                 survivor: [N] index at the last depth of each particle of the read-out}
    tree        {kind: "tree", value, and per visited node, the root first: parent: index or -1, action, prior, reward,
                 ended, visits, node_value; picture: [names] | null}

# The live page

The page is served at `/?token=TOKEN`. Its document has the field `live`. All requests are POST with a JSON object and
the headers `X-Spo-Token: TOKEN` and `X-Spo-Session: live.session`: each page that is opened has an episode of its own.
Answers are JSON objects. A refused request has a status of 400 or more and the answer
`{"error": sentence}`.

    /api/session  {}                                     the whole document, as at the start of the page
    /api/search   {index, settings, seed}                decides again in the state of step `index`
    /api/step     {index, action, settings, seed}        takes `action` in the state of step `index`, drops all later
                                                         steps, and decides in the state reached
    /api/undo     {}                                     drops the last step
    /api/reset    {seed, start, settings}                a new episode; `start` is null or a number between `low` and
                                                         `high` of `live.starts`: scrambles of a cube, a level
    /api/picture  {search_id, place}                     picture of a simulated state; `place` is [depth, particle], or
                                                         [node] of a tree. Answer: {picture: picture | null}
    /api/status   {}                                     {compiling: bool, queue: number of waiting requests}. Answered
                                                         at once, also while a search runs

`settings` holds any of the document's settings; those left out are the run's own. `seed` of a search is its own random
seed: with that of the episode, the search is the one of the static page. The answer of search, step, undo and reset is

    {length: number of steps now, steps: [the steps that changed], pictures: {their pictures}}

The page puts each step in the place of its `index` and drops those from `length` on. The compilation of a new
combination of settings takes seconds. Meanwhile `/api/status` answers `compiling: true`, and afterwards the decision
has `compile_seconds`.
"""

#: Version of the document.
FORMAT = 1
#: Largest body of a request in bytes.
MAX_REQUEST = 16_384

__all__ = ["FORMAT", "MAX_REQUEST"]
