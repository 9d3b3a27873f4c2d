// Numbers, actions and decisions in words.

/** Returns a number with three significant digits, or a dash for a missing one. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return minus(String(value));
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e5)) return minus(value.toExponential(1));
  return minus(size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(size >= 1 ? 2 : 3));
}

function minus(text) {
  return text.replace("-", "−");
}

/** Returns a share in per cent. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = 100 * share;
  if (value > 0 && value < 0.5) return "<1 %";
  if (value > 99.5 && value < 100) return ">99 %";
  return `${value.toFixed(0)} %`;
}

/** Returns the name of an action; the numbers of a continuous one. */
export function actionName(actions, action) {
  if (action === null || action === undefined) return "–";
  if (actions.kind === "discrete") return actions.names[action] ?? `action ${action}`;
  const shown = action.slice(0, 4).map(number).join(", ");
  return action.length > 4 ? `(${shown}, …)` : `(${shown})`;
}

/** Returns "1 particle" or "3 particles". */
export function count(amount, word) {
  return `${amount} ${word}${amount === 1 ? "" : "s"}`;
}

const READOUTS = {
  all_depths: " (the mean over all depths)",
  mean_returns: " (by the mean return of the particles that began with each action)",
};

/** Returns the sentences that say why the action of a decision was chosen. */
export function whyChosen(decision, actions) {
  const { search, policy } = decision;
  const name = actionName(actions, decision.action);
  const how = decision.settings.greedy ? "It is the most likely action." : "Actions are drawn at random with these shares as probabilities.";
  if (policy.kind === "continuous") return whyContinuous(decision, name);
  const before = policy.before?.[decision.action];
  if (!search) {
    if (before === undefined) return [`${name} was chosen.`];
    return [`${name} was chosen. The policy network gives it ${percent(before)}. ${how}`];
  }
  const after = policy.after[decision.action];
  const rank = policy.after.filter((share) => share > after + 1e-9).length;
  const place = rank === 0 ? "the largest share" : `the ${ordinal(rank + 1)} largest share`;
  const sentences = [search.kind === "particles"
    ? `${name} was chosen: ${percent(after)} of the weight is on particles that began with it, ${place}${READOUTS[decision.settings.readout] ?? ""}.`
    : `${name} was chosen: after the search its share is ${percent(after)}, ${place}.`];
  if (before !== undefined) sentences.push(`Before the search the policy network gave it ${percent(before)}.`);
  sentences.push(how);
  return sentences.concat(search.kind === "particles" ? particleSentences(search) : treeSentences(search));
}

function ordinal(place) {
  const ending = place % 100 >= 11 && place % 100 <= 13 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[place % 10] ?? "th";
  return `${place}${ending}`;
}

function whyContinuous(decision, name) {
  const how = decision.settings.greedy ? "the most likely one" : "drawn at random by their weights";
  if (!decision.search) return [`${name} was chosen by the policy network.`];
  if (decision.search.kind === "tree") return [`${name} was chosen among the sampled actions by their visits.`];
  return [`${name} was chosen among the first actions of the particles: ${how}.`, ...particleSentences(decision.search)];
}

function particleSentences(search) {
  const last = search.horizon - 1;
  const ended = search.num_particles - search.live[last];
  const sentences = [];
  if (ended > 0) sentences.push(`${count(ended, "particle")} of ${search.num_particles} reached the end of the episode.`);
  const resamples = search.resampled.filter(Boolean).length;
  sentences.push(resamples === 0
    ? "The particles were not resampled: they only gained and lost weight."
    : `The particles were resampled ${resamples === 1 ? "once" : `${resamples} times`}.`);
  if (!search.valid) sentences.push("The search met an undefined number (NaN): its result is not valid.");
  return sentences;
}

function treeSentences(search) {
  return [`The tree has ${count(search.parent.length, "state")}.`];
}
