// The page: reads the document, shows one step of the episode, and follows keys, theme and size.

import { element, isNarrow, replace } from "./dom.mjs";
import { CLAUSES, drawGuide, leadSentence, MEANINGS } from "./guide.mjs";
import { connect, controlHelp, makeControls, merge, showStatus } from "./live.mjs";
import { drawObservation, drawPicture } from "./pictures_view.mjs";
import { drawDecision } from "./search_view.mjs";
import { actionName, count, figure, number, percent, tenths } from "./words.mjs";

const SECONDS_PER_STEP = 1.2;
const THEMES = ["auto", "light", "dark"];
/** Metrics that are 0 or 1 and mean no or yes. */
const YES_OR_NO = new Set(["solved", "success", "won"]);

/** Starts the page. */
export function start() {
  const data = JSON.parse(document.getElementById("document").textContent);
  const page = {
    data, at: 0, timer: null, theme: 0, second: null, live: null,
    parts: Object.fromEntries([...document.querySelectorAll("[data-part]")].map((node) => [node.dataset.part, node])),
  };
  describeRun(page);
  addScrubbing(page);
  addTheme(page);
  // On a narrow page, and below the controls of a live one, the explanation would hide the search: it is one tap away.
  if (isNarrow() || data.live) document.querySelector(".guide").open = false;
  if (data.live) addLive(page);
  show(page, data.live ? data.steps.length - 1 : 0);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; show(page, page.at); }
  });
}

function describeRun({ data, parts }) {
  const { run } = data;
  document.title = `${run.algorithm} on ${run.task}`;
  // A long name may break after its separators.
  const pieces = `${run.algorithm} on ${run.task}`.split(/(?<=[_/-])/);
  replace(parts.title, pieces.flatMap((piece, index) => (index === 0 ? [piece] : [element("wbr"), piece])));
  replace(parts.subtitle, `${run.name} · ${run.which} parameters, after ${run.env_steps.toLocaleString("en")} training steps · `
    + `episode of seed ${data.seed} · spo ${data.version}`);
}

// --- One step --------------------------------------------------------------------------------------------------------

/** Shows step `index` of the episode. */
export function show(page, index) {
  const { data, parts } = page;
  page.at = Math.max(0, Math.min(data.steps.length - 1, index));
  const step = data.steps[page.at];
  parts.slider.max = data.steps.length - 1;
  parts.slider.value = page.at;
  const position = positionOf(page.at, data.steps);
  parts.slider.setAttribute("aria-valuetext", position);
  replace(parts.position, position);
  parts.back.disabled = page.at === 0;
  parts.forward.disabled = page.at === data.steps.length - 1;
  replace(parts.state, drawState(data, step));
  replace(parts.facts, drawFacts(data, step));
  const explained = step.decision ?? data.steps.find((other) => other.decision)?.decision ?? null;
  // The reader may have opened the glossary: it stays open.
  const open = parts.guide.querySelector(".glossary")?.open ?? false;
  replace(parts.guide, drawGuide(explained, data.actions, data.method, Object.keys(step.metrics)));
  parts.guide.querySelector(".glossary").open = open;
  replace(parts.lead, leadSentence(explained, data.actions));
  const circles = explained?.search?.kind === "tree" ? "states of the tree" : "particles";
  const keys = `Keys: ← → step through the episode, Home and End jump.${explained?.search ? ` Tab reaches the ${circles}, and arrow keys move among them.` : ""}`;
  replace(parts.keys, isNarrow() ? "Tap ◀ or ▶ to step through the episode." : keys);
  showDecisions(page, step);
}

function positionOf(at, steps) {
  const moves = steps.length - 1;
  if (at < moves) return `before move ${at + 1} of ${moves}`;
  if (steps[at].decision) return `before move ${at + 1}`;
  return moves === 0 ? "start" : `after move ${moves} of ${moves}`;
}

function drawState(data, step) {
  if (step.picture !== null) return drawPicture(data.pictures[step.picture], `state at step ${step.index}`);
  return step.observation ? drawObservation(step.observation) : element("p", { class: "note" }, "No picture.");
}

function drawFacts(data, step) {
  const { decision } = step;
  const facts = [["Return so far", number(step.return)]];
  if (decision) {
    facts.push(["Chosen action", actionName(data.actions, decision.action)]);
    if (step.reward !== null) facts.push(["Reward of the step", number(step.reward)]);
    facts.push(["Value, by the network", figure(decision.value)]);
    if (decision.search) facts.push(["Value, by the search", figure(decision.search.value)]);
    if (decision.temperature !== null) facts.push(["Temperature", number(decision.temperature)]);
    if (decision.search?.kind === "particles") {
      const { search } = decision;
      facts.push(["Effective particles", `${tenths(search.ess[search.horizon - 1])} of ${search.num_particles}`]);
    }
  }
  for (const [name, value] of Object.entries(step.metrics)) {
    const shown = YES_OR_NO.has(name) && (value === 0 || value === 1) ? (value === 1 ? "yes" : "no") : number(value);
    facts.push([name.replaceAll("_", " "), shown]);
  }
  if (step.end) facts.push(["End of the episode", step.end === "terminated" ? "finished" : "cut off (time limit)"]);
  const clauses = decision?.search?.kind === "particles" ? CLAUSES : {};
  return element("dl", {}, facts.map(([name, value]) =>
    element("div", { title: MEANINGS[name] },
      element("dt", {}, name, clauses[name] ? element("small", {}, clauses[name]) : null), element("dd", {}, value))));
}

function showDecisions(page, step) {
  const { data, parts, live } = page;
  if (!step.decision) {
    replace(parts.decision, drawEnd(data, page.at));
    parts.decision.classList.remove("compared");
    return;
  }
  const second = live && page.second?.index === step.index ? page.second.decision : null;
  const compared = second !== null;
  const common = {
    actions: data.actions, mask: step.mask, method: data.method, pictures: data.pictures, width: panelWidth(parts.decision, compared),
    askPicture: live ? live.picture : null, ranking: step.decision.policy.after,
  };
  const play = live ? (action) => live.play(action) : null;
  replace(parts.decision,
    drawDecision({ ...common, decision: step.decision, title: compared ? "First settings" : null, play }),
    compared ? drawDecision({ ...common, decision: second, title: "Second settings", isSecond: true, play: null }) : null);
  parts.decision.classList.toggle("compared", compared);
}

/** Returns the outcome of an episode and the moves that led to it. */
function drawEnd(data, at) {
  const step = data.steps[at];
  const rows = data.steps.slice(0, at).map((before, index) => {
    const { decision, taken } = before;
    const shares = decision?.policy.after ?? decision?.policy.before;
    const share = data.actions.kind === "discrete" ? shares?.[taken] : undefined;
    return [String(index + 1), actionName(data.actions, taken), percent(share), number(before.reward), number(data.steps[index + 1].return)];
  });
  const header = ["move", "action", "chance", "reward", "return so far"];
  return element("section", { class: "outcome" },
    element("p", { class: "ended" }, endSentence(step, at)),
    rows.length === 0 ? null : element("table", { class: "path" },
      element("thead", {}, element("tr", {}, header.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell) => element("td", {}, cell)))))));
}

function endSentence(step, at) {
  const moves = count(at, "move");
  if (step.end === null) return `The recording ends here, after ${moves}. No decision was recorded for this state.`;
  if (step.metrics.solved === 1) return `Solved in ${moves}. The episode has ended: there is nothing to decide.`;
  const failed = step.metrics.solved === 0 ? "Not solved. " : "";
  if (step.end === "terminated") return `${failed}The episode has ended after ${moves}: there is nothing to decide.`;
  return `${failed}The time limit has cut off the episode after ${moves}: there is nothing to decide.`;
}

/** Returns the width for the picture of a search: the policy stands beside it on wide pages. */
function panelWidth(place, compared) {
  const room = place.clientWidth || 800;
  if (compared) return room >= 900 ? room / 2 - 60 : room - 34;
  return room >= 760 ? room - 364 : room - 34;
}

// --- Scrubbing -------------------------------------------------------------------------------------------------------
function addScrubbing(page) {
  const { parts } = page;
  parts.slider.addEventListener("input", () => show(page, Number(parts.slider.value)));
  parts.back.addEventListener("click", () => show(page, page.at - 1));
  parts.forward.addEventListener("click", () => show(page, page.at + 1));
  parts.run.addEventListener("click", () => toggleRunning(page));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, .dot")) return;
    const moves = { ArrowLeft: page.at - 1, ArrowRight: page.at + 1, Home: 0, End: page.data.steps.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(page, moves[event.key]);
  });
}

function toggleRunning(page) {
  const stop = () => {
    clearInterval(page.timer);
    page.timer = null;
    replace(page.parts.run, "Run");
    page.parts.run.setAttribute("aria-pressed", "false");
  };
  if (page.timer !== null) { stop(); return; }
  if (page.at === page.data.steps.length - 1) show(page, 0);
  replace(page.parts.run, "Stop");
  page.parts.run.setAttribute("aria-pressed", "true");
  page.timer = setInterval(() => {
    show(page, page.at + 1);
    if (page.at === page.data.steps.length - 1) stop();
  }, 1000 * SECONDS_PER_STEP);
}

function addTheme(page) {
  const { parts } = page;
  parts.theme.addEventListener("click", () => {
    page.theme = (page.theme + 1) % THEMES.length;
    const theme = THEMES[page.theme];
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    replace(parts.theme, `Theme: ${theme}`);
  });
}

// --- The live page ---------------------------------------------------------------------------------------------------
function addLive(page) {
  const { data, parts } = page;
  const token = new URLSearchParams(window.location.search).get("token") ?? "";
  const requests = connect(token, data.live.session ?? "", (text) => {
    showStatus(parts.status, text, text === null ? "" : "waiting");
    parts.decision.classList.toggle("waiting", text !== null);
  });
  parts.status.hidden = false;
  const searches = data.settings.use_search !== undefined;
  const first = makeControls(data.controls, data.settings, data.seed, "Settings of the search");
  const second = makeControls(data.controls, data.settings, data.seed, "Settings of the second search");
  const turns = takeTurns(page);
  const search = async () => {
    const index = page.at;
    const before = data.steps[index].decision;
    merge(data, await requests.search(index, first.read().settings, first.read().seed));
    page.second = null;
    if (compare.checked) {
      const answer = await requests.search(index, second.read().settings, second.read().seed);
      Object.assign(data.pictures, answer.pictures);
      page.second = { index, decision: answer.steps[0].decision };
    }
    showStatus(parts.status, timeSentence(data.steps[index].decision) + changeSentence(before, data.steps[index].decision, data.actions));
  };
  const searchAgain = () => turns.last(search);
  const play = (action) => turns.one(async () => {
    merge(data, await requests.step(page.at, action, first.read().settings, first.read().seed));
    page.second = null;
    page.at += 1;
    showStatus(parts.status, `Played ${actionName(data.actions, action)}. ${timeSentence(data.steps[page.at].decision)}`);
  });
  const playChosen = () => {
    const { decision } = data.steps[page.at];
    if (decision) play(decision.action);
    else showStatus(parts.status, "The episode has ended: take a step back, or start a new episode.", "error");
  };
  const undo = () => turns.one(async () => {
    merge(data, await requests.undo());
    page.at = data.steps.length - 1;
    page.second = null;
    showStatus(parts.status, "Took back the last step.");
  });
  const compare = element("input", { type: "checkbox", name: "compare", onchange: () => {
    secondFrame.hidden = !compare.checked;
    searchAgain();
  } });
  const secondFrame = element("div", { class: "second", hidden: true }, element("h3", {}, "Second settings"), second.form);
  const episode = episodeControls(data, (seed, startNumber) => turns.one(async () => {
    merge(data, await requests.reset(seed, startNumber, first.read().settings));
    data.seed = seed;
    page.second = null;
    page.at = 0;
    describeRun(page);
    showStatus(parts.status, `Started a new episode. ${timeSentence(data.steps[0].decision)}`);
  }));
  for (const form of [first.form, second.form]) {
    form.addEventListener("submit", (event) => { event.preventDefault(); searchAgain(); });
    form.addEventListener("change", searchAgain);
  }
  const button = (text, onclick, kind = null) => element("button", { type: "button", class: kind, onclick }, text);
  replace(parts.live,
    element("h2", {}, searches ? "Change the search" : "Change the decision"), first.form,
    element("div", { class: "buttons" },
      button(searches ? "Search again" : "Decide again", searchAgain, "primary"),
      button("Another seed", () => { first.nextSeed(); searchAgain(); }),
      button("Play the chosen action", playChosen), button("Take back", undo),
      element("label", {}, compare, " compare with second settings")),
    secondFrame, episode, controlHelp(data.controls));
  parts.live.hidden = false;
  showStatus(parts.status, searches ? "Change a setting, or search with another seed." : "Change a setting, or decide with another seed.");
  page.live = { play, picture: requests.picture };
}

/** Returns functions that start one piece of work at a time and show the page after it. */
function takeTurns(page) {
  const { parts } = page;
  let busy = false;
  let waiting = null;
  const one = async (work) => {
    if (busy) return;
    busy = true;
    parts.live.classList.add("busy");
    const focused = document.activeElement?.getAttribute("aria-label");
    try {
      await work();
      show(page, page.at);
      restoreFocus(parts.decision, focused);
    } catch (error) {
      showStatus(parts.status, error.message, "error");
    } finally {
      busy = false;
      parts.live.classList.remove("busy");
    }
    if (waiting !== null) await last(waiting);
  };
  // A control that changes during a search counts as well: the last change is searched when the running one ends.
  const last = async (work) => {
    waiting = busy ? work : null;
    if (!busy) await one(work);
  };
  return { one, last };
}

/** Focuses the button in whose place the focused one was: keys keep their place when the panel is drawn anew. */
function restoreFocus(panel, label) {
  if (!label || document.activeElement !== document.body) return;
  [...panel.querySelectorAll("button[aria-label]")].find((button) => button.getAttribute("aria-label") === label)
    ?.focus({ preventScroll: true });
}

function timeSentence(decision) {
  if (!decision) return "";
  const compiled = decision.compile_seconds > 0.05 ? ` after ${number(decision.compile_seconds)} s of compilation` : "";
  const verb = decision.search ? "Searched" : "Decided";
  return `${verb} in ${Math.max(1, Math.round(1000 * decision.seconds))} ms${compiled}. `;
}

/** Returns what a new search in the same state changed. */
function changeSentence(before, after, actions) {
  if (!before || !after) return "";
  const [old, now] = [actionName(actions, before.action), actionName(actions, after.action)];
  return old === now ? `Chosen: ${now}, as before.` : `Chosen: ${now}, before: ${old}.`;
}

function episodeControls(data, reset) {
  const seed = element("input", { type: "number", min: 0, max: 4294967295, step: 1, value: data.seed, name: "episode-seed" });
  const { starts } = data.live;
  const number_ = starts === null ? null : element("input", {
    type: "number", min: starts.low, max: starts.high, step: 1, name: "start", placeholder: "random" });
  const form = element("form", { class: "controls", "aria-label": "New episode" },
    element("label", {}, element("span", {}, "Episode seed"), seed),
    number_ === null ? null : element("label", {}, element("span", {}, starts.label), number_),
    element("button", { type: "submit" }, "New episode"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    reset(Math.max(0, Math.round(Number(seed.value) || 0)), !number_ || number_.value === "" ? null : Number(number_.value));
  });
  return form;
}
