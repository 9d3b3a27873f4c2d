// The live page: requests to the server, and the controls of a search. `spo.inspection.protocol` describes the requests.

import { element, replace } from "./dom.mjs";
import { count } from "./words.mjs";

const SEED_HELP = "Random seed of the search: the same seed and settings give the same search.";
/** Milliseconds after which a search that has not answered may be compiling. */
const PATIENCE = 250;

/** Returns functions that send requests, one at a time. `onWait(text | null)` is told that an answer takes long. */
export function connect(token, session, onWait) {
  const post = async (path, body) => {
    const response = await fetch(path, {
      method: "POST", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "X-Spo-Token": token, "X-Spo-Session": session },
    }).catch(() => {
      throw new Error("The server does not answer. If it has ended, start `spo inspect RUN --serve` again and open the address that it prints.");
    });
    const answer = await response.json().catch(() => ({ error: `The server answered with status ${response.status}.` }));
    if (!response.ok) throw new Error(answer.error ?? `The server answered with status ${response.status}.`);
    return answer;
  };
  const patiently = async (path, body) => {
    const started = performance.now();
    let answered = false;
    const ask = async () => {
      const status = await post("/api/status", {}).catch(() => null);
      const seconds = Math.round((performance.now() - started) / 1000);
      if (answered) return;
      const others = status?.queue ? ` ${count(status.queue, "request")} ${status.queue === 1 ? "waits" : "wait"} behind it.` : "";
      onWait((status?.compiling ? `Compiling these settings, which is done once … ${seconds} s.` : `Searching … ${seconds} s.`) + others);
    };
    const timer = setInterval(ask, PATIENCE);
    try {
      return await post(path, body);
    } finally {
      answered = true;
      clearInterval(timer);
      onWait(null);
    }
  };
  return {
    search: (index, settings, seed) => patiently("/api/search", { index, settings, seed }),
    step: (index, action, settings, seed) => patiently("/api/step", { index, action, settings, seed }),
    undo: () => patiently("/api/undo", {}),
    reset: (seed, start, settings) => patiently("/api/reset", { seed, start, settings }),
    picture: (search_id, place) => post("/api/picture", { search_id, place }),
  };
}

/** Puts the steps of an answer into the document and drops those that are not there any more. */
export function merge(documentData, answer) {
  Object.assign(documentData.pictures, answer.pictures);
  for (const step of answer.steps) {
    // An answer has a decision for the last of its steps only; the others keep theirs.
    const before = documentData.steps[step.index];
    const kept = step.decision ?? (step.end === null && before?.picture === step.picture ? before.decision : null);
    documentData.steps[step.index] = { ...step, decision: kept };
  }
  documentData.steps.length = answer.length;
}

/** Returns a form with the controls of a search. `read()` returns the settings and the seed that it shows. */
export function makeControls(controls, settings, seed, label) {
  const inputs = new Map();
  const rows = controls.map((control) => {
    const input = control.kind === "choice" ? choice(control, settings[control.name]) : numberInput(control, settings[control.name]);
    inputs.set(control.name, [control, input]);
    return element("label", { title: control.help }, element("span", {}, control.label), input);
  });
  const seedInput = element("input", { type: "number", min: 0, max: 4294967295, step: 1, value: seed, name: "seed" });
  const form = element("form", { class: "controls", "aria-label": label },
    rows, element("label", { title: SEED_HELP }, element("span", {}, "Seed"), seedInput));
  const nextSeed = () => { seedInput.value = String((Math.round(Number(seedInput.value) || 0) + 1) % 4294967296); };
  const read = () => {
    const chosen = {};
    for (const [name, [control, input]] of inputs) {
      if (control.kind === "choice") chosen[name] = control.values[input.selectedIndex];
      else chosen[name] = input.value === "" ? null : Number(input.value);
    }
    return { settings: chosen, seed: Math.max(0, Math.round(Number(seedInput.value) || 0)) };
  };
  return { form, read, nextSeed };
}

function choice(control, own) {
  return element("select", { name: control.name }, control.values.map((value) =>
    element("option", { selected: value === own }, valueName(value))));
}

function valueName(value) {
  if (value === null) return "never";
  if (value === true) return "yes";
  if (value === false) return "no";
  return String(value).replaceAll("_", " ");
}

function numberInput(control, own) {
  return element("input", { type: "number", name: control.name, min: control.values[0], max: control.values[1],
    step: "any", value: own ?? "", placeholder: "agent's own" });
}

/** Returns what each control means, to be opened. */
export function controlHelp(controls) {
  const meanings = [...controls.map(({ label, help }) => [label, help]), ["Seed", SEED_HELP]];
  return element("details", { class: "glossary" }, element("summary", {}, "What the settings mean"),
    element("dl", {}, meanings.map(([name, text]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, text)))));
}

/** Shows a sentence about the state of the requests, or nothing. `kind` is "error", "waiting" or empty. */
export function showStatus(place, text, kind = "") {
  place.classList.toggle("error", kind === "error");
  place.classList.toggle("waiting", kind === "waiting");
  replace(place, text ?? "");
}
