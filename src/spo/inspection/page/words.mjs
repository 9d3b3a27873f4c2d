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

/** Returns a value estimate. All have the same number of decimals, so that 1 and 0.994 can be compared at a glance. */
export function figure(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 100 ? minus(value.toFixed(3)) : number(value);
}

const SHARES = {
  last: "its share of the weight at the last depth",
  all_depths: "its share of the weight, mean over all depths",
  mean_returns: "its share by the mean return of the particles that began with it",
};

/**
 * Returns two paragraphs: why the action of a decision was chosen, and what the search did (empty without a search).
 * `method` is that of the document.
 */
export function whyChosen(decision, actions, method = null) {
  const { search } = decision;
  const chosen = decision.policy.kind === "continuous" ? whyContinuous(decision, actions) : whyDiscrete(decision, actions);
  if (!search) return [chosen, ""];
  return [chosen, (search.kind === "particles" ? particleSentences(decision, actions, method) : treeSentences(search)).join(" ")];
}

function whyDiscrete({ search, policy, action, settings }, actions) {
  const name = actionName(actions, action);
  const before = policy.before?.[action];
  const shares = search ? policy.after : policy.before;
  if (!shares) return `${name} was chosen.`;
  const share = search ? SHARES[settings.readout] ?? "its share of the weight" : "its share by the policy network";
  const best = shares.indexOf(Math.max(...shares));
  const isBest = shares[action] >= shares[best] - 1e-9;
  // Not every tree search draws its action from the shares: Gumbel AlphaZero takes the best of its own samples.
  const sentences = [search?.kind === "tree" ? `${name} was chosen: its share after the search is ${percent(shares[action])}.` : settings.greedy
    ? `${name} was chosen: it has the largest share. It is ${percent(shares[action])} (${share}).`
    : `${name} was chosen. Drawn at random: its chance was ${percent(shares[action])} (${share}).`];
  if (!isBest && !settings.greedy) sentences.push(`The likeliest was ${actionName(actions, best)} with ${percent(shares[best])}.`);
  if (search && before !== undefined) sentences.push(`Before the search the policy network gave it ${percent(before)}.`);
  return sentences.join(" ");
}

function whyContinuous(decision, actions) {
  const name = actionName(actions, decision.action);
  const how = decision.settings.greedy ? "the most likely one" : "drawn at random by their weights";
  if (!decision.search) return `${name} was chosen by the policy network.`;
  if (decision.search.kind === "tree") return `${name} was chosen among the sampled actions by their visits.`;
  return `${name} was chosen among the first actions of the particles: ${how}.`;
}

function particleSentences(decision, actions, method) {
  const { search } = decision;
  const last = search.horizon - 1;
  const ended = search.num_particles - search.live[last];
  const sentences = [firstActionSentence(search, actions, method)];
  if (ended > 0) sentences.push(`${ended} of ${count(search.num_particles, "particle")} reached the end of the episode.`);
  sentences.push(resampleSentence(decision, method));
  if (!search.valid) sentences.push("The search met an undefined number (NaN): its result is not valid.");
  return sentences;
}

/** Returns how the first actions were picked. */
export function firstActionSentence(search, actions, method) {
  if (actions.kind !== "discrete" || !method?.num_root_candidates) {
    return "Each particle drew its first action by the policy network's probabilities.";
  }
  const different = new Set(search.action[0]).size;
  const each = search.num_particles / different;
  const share = Number.isInteger(each) ? `each is tried by ${count(each, "particle")}` : `${search.num_particles} particles share them`;
  return `${count(different, "different first action")} ${different === 1 ? "was" : "were"} drawn by the policy network's probabilities, and ${share}.`;
}

/** Returns if the particles were resampled, and why not. */
export function resampleSentence({ search, settings }, method) {
  const resamples = search.resampled.filter(Boolean).length;
  if (resamples > 0) return `The particles were resampled ${resamples === 1 ? "once" : `${resamples} times`}.`;
  const period = settings.resample_period;
  const only = "they only gained and lost weight.";
  if (period === null) return `Resampling is off: ${only}`;
  if (period >= search.horizon) {
    return `Particles are resampled every ${count(period, "depth")}, and this search is ${search.horizon} deep: ${only}`;
  }
  if (method?.ess_threshold) {
    return `The weight stayed spread over more than ${percent(method.ess_threshold)} of the particles, so they were not resampled.`;
  }
  return `The particles were not resampled: ${only}`;
}

function treeSentences(search) {
  return [`The tree has ${count(search.parent.length, "state")}.`];
}
