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
  return action.length > 4 ? `(${action.slice(0, 4).map(number).join(", ")}, …)` : allNumbers(action);
}

/** Returns all numbers of a continuous action. */
export function allNumbers(action) {
  return action.length === 1 ? number(action[0]) : `(${action.map(number).join(", ")})`;
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
 * `method` is that of the document; `howEnded` is the end of all ended particles in words, or null.
 */
export function whyChosen(decision, actions, method = null, howEnded = null) {
  const { search } = decision;
  const chosen = [chanceSentences(decision, actions), promiseSentence(decision, actions)].filter(Boolean).join(" ");
  if (!search) return [chosen, ""];
  return [chosen, (search.kind === "particles" ? particleSentences(decision, actions, method, howEnded) : treeSentences(search)).join(" ")];
}

function chanceSentences(decision, actions) {
  const { search, policy, action, settings } = decision;
  const name = inSentence(actions, action);
  if (!search) return choiceOfNetwork(decision, actions);
  const chances = chancesAfter(policy);
  const own = chances.get(keyOf(action));
  if (own === undefined) return `${capital(name)} was chosen.`;
  const largest = Math.max(...chances.values());
  // Not every tree search draws its action from the shares: Gumbel AlphaZero takes the best of its own samples.
  const how = search.kind === "tree" ? `was chosen: its share after the search is ${percent(own)}.` : settings.greedy
    ? `was chosen: it has the largest share. It is ${percent(own)} (${shareOf(decision)}).`
    : `was chosen. Drawn at random: its chance was ${percent(own)} (${shareOf(decision)}).`;
  const sentences = [`${capital(name)} ${how}`];
  if (own < largest - 1e-9 && !settings.greedy) {
    const likeliest = [...chances.keys()].find((key) => chances.get(key) === largest);
    sentences.push(`The likeliest was ${inSentence(actions, JSON.parse(likeliest))} with ${percent(largest)}.`);
  }
  const before = policy.before?.[action];
  if (actions.kind === "discrete" && before !== undefined) sentences.push(`Before the search the policy network gave it ${percent(before)}.`);
  return sentences.join(" ");
}

function shareOf({ search, settings }) {
  if (search.resampled?.[search.horizon - 1]) return "its share of the particles after the last resample";
  return SHARES[settings.readout] ?? "its share of the weight";
}

/** Returns the name of an action inside a sentence: bare numbers would be taken for something else. */
function inSentence(actions, action) {
  return actions.kind === "discrete" ? actionName(actions, action) : `action ${actionName(actions, action)}`;
}

/** Returns the beginning of a sentence. Names of actions, such as "up" and "R'", are left as they are. */
function capital(text) {
  return text.startsWith("action ") ? `A${text.slice(1)}` : text;
}

function choiceOfNetwork({ policy, action, settings }, actions) {
  const name = capital(inSentence(actions, action));
  if (!policy.before) return `${name} was chosen.`;
  if (actions.kind !== "discrete") {
    return settings.greedy ? `${name} was chosen: the most likely action of the policy network.`
      : `${name} was chosen: drawn at random from the densities of the policy network.`;
  }
  const [own, largest] = [policy.before[action], Math.max(...policy.before)];
  if (settings.greedy) return `${name} was chosen: the policy network gives it the largest probability, ${percent(own)}.`;
  const other = own < largest ? ` The likeliest was ${actionName(actions, policy.before.indexOf(largest))} with ${percent(largest)}.` : "";
  return `${name} was chosen. Drawn at random: the policy network gave it a chance of ${percent(own)}.${other}`;
}

/** Returns the chance of each action after a search, by its key. */
function chancesAfter({ kind, after }) {
  if (kind === "discrete") return new Map((after ?? []).map((share, action) => [keyOf(action), share]));
  const chances = new Map();
  after?.actions.forEach((action, index) => {
    chances.set(keyOf(action), (chances.get(keyOf(action)) ?? 0) + after.weights[index]);
  });
  return chances;
}

function keyOf(action) {
  return JSON.stringify(action);
}

/** Returns what each first action promised one step ahead: the mean of reward plus value (no value after an end). */
export function promises(search) {
  const sums = new Map();
  const add = (action, reward, value, ended) => {
    const [sum, count_] = sums.get(keyOf(action)) ?? [0, 0];
    sums.set(keyOf(action), [sum + (reward ?? 0) + (ended ? 0 : value ?? 0), count_ + 1]);
  };
  if (search.kind === "tree") {
    search.parent.forEach((parent, node) => {
      if (parent === 0) add(search.action[node], search.reward[node], search.node_value[node], false);
    });
  } else {
    search.action[0].forEach((action, at) =>
      add(action, search.reward[0][at], search.particle_value[0][at], search.ended[0][at]));
  }
  return new Map([...sums].map(([key, [sum, count_]]) => [key, sum / count_]));
}

/** Returns how well the chosen action did in the search, beside the others; empty without a search. */
function promiseSentence(decision, actions) {
  const { search, action, value } = decision;
  if (!search) return "";
  const all = promises(search);
  const own = all.get(keyOf(action));
  if (own === undefined) return "";
  const expected = ` The value network expected ${figure(value)} in this state.`;
  const promise = `${capital(inSentence(actions, action))} promises ${figure(own)} (${whatPromised(search)})`;
  const decides = ` ${decidingSentence(decision)}`;
  if (all.size === 1) return `It was the only action that was tried. ${promise}.${expected}`;
  const best = [...all].reduce((first, other) => (other[1] > first[1] ? other : first));
  if (own >= best[1]) return `${promise}: the most of the ${all.size} actions that were tried.${decides}${expected}`;
  return `${promise}. Of the ${all.size} actions that were tried, ${inSentence(actions, JSON.parse(best[0]))} promises the most: `
    + `${figure(best[1])}.${decides}${expected}`;
}

function whatPromised(search) {
  const sum = "reward of the first step plus the value of the state after it";
  return search.kind === "tree" ? sum : `${sum}, mean over its particles`;
}

/** Returns what decides instead of the promise. */
function decidingSentence({ search, settings }) {
  if (search.kind === "tree") return "The share decides, not the promise.";
  return settings.readout === "mean_returns" ? "The mean return of whole particles decides, not the promise of the first step."
    : "The weight decides, not the promise.";
}

function particleSentences(decision, actions, method, howEnded) {
  const { search } = decision;
  const last = search.horizon - 1;
  const ended = search.num_particles - search.live[last];
  const sentences = [firstActionSentence(search, actions, method), weightSentence(method)];
  if (ended > 0) sentences.push(`${ended} of ${count(search.num_particles, "particle")} ${ENDS[howEnded] ?? "reached the end of the episode."}`);
  sentences.push(resampleSentence(decision, method));
  const alone = survivorSentence(search, actions);
  if (alone) sentences.push(alone);
  if (!search.valid) sentences.push("The search met an undefined number (NaN): its result is not valid.");
  return sentences;
}

const ENDS = {
  solved: "reached a solved state, which ends the episode.",
  "not solved": "reached the end of the episode, not solved.",
};

/** Returns why weights change. */
function weightSentence(method) {
  return method?.weighting === "q_value" ? "A particle gains weight where reward and value are high."
    : "A particle gains weight where reward and value turned out better than expected.";
}

/** Returns how the first actions were picked. */
export function firstActionSentence(search, actions, method) {
  if (actions.kind !== "discrete" || !method?.num_root_candidates) {
    return "Each particle drew its first action by the policy network's probabilities.";
  }
  const different = new Set(search.action[0]).size;
  const each = search.num_particles / different;
  const share = Number.isInteger(each) ? `each is tried by ${count(each, "particle")}` : `${search.num_particles} particles share them`;
  const unlikely = different === 1 ? "" : " An unlikely one starts with a small weight, so that on average it counts by its probability.";
  return `${count(different, "first action")} ${different === 1 ? "was" : "were"} drawn without repetition by the policy network's probabilities, `
    + `and ${share}.${unlikely}`;
}

/** Returns from which depth on all particles began with one action; empty if there is none, or only one was tried. */
function survivorSentence(search, actions) {
  if (actions.kind !== "discrete") return "";
  const firsts = [search.action[0]];
  for (let depth = 1; depth < search.horizon; depth++) {
    firsts.push(search.parent[depth].map((parent) => firsts[depth - 1][parent]));
  }
  const depth = firsts.findIndex((row) => new Set(row).size === 1);
  if (depth <= 0) return "";
  return `From depth ${depth + 1} on, every particle is a future that began with ${actionName(actions, firsts[depth][0])}: `
    + "the others were dropped.";
}

/** Returns if the particles were resampled, and why or why not. */
export function resampleSentence({ search, settings }, method) {
  const depths = search.resampled.flatMap((was, depth) => (was ? [depth] : []));
  const period = settings.resample_period;
  const threshold = method?.ess_threshold;
  if (depths.length > 0) {
    const times = depths.length === 1 ? "once" : `${depths.length} times`;
    const why = threshold ? `where less than ${percent(threshold)} of them were effective`
      : `after every ${period === 1 ? "depth" : `${period} depths`}, as the setting says`;
    const effective = listed(depths.map((depth) => tenths(search.ess[depth])));
    return `The particles were resampled ${times}: ${why}.`
      + ` Just before, the weight was spread as if over ${effective} of ${search.num_particles} particles.`;
  }
  const only = "they only gained and lost weight.";
  if (period === null) return `Resampling is off: ${only}`;
  if (period >= search.horizon) {
    return `Particles are resampled every ${count(period, "depth")}, and this search is ${search.horizon} deep: ${only}`;
  }
  if (threshold) {
    return `The weight stayed spread over more than ${percent(threshold)} of the particles, so they were not resampled.`;
  }
  return `The particles were not resampled: ${only}`;
}

/** Returns a number with one decimal at most. */
export function tenths(value) {
  return value === null || value === undefined ? "–" : String(Math.round(10 * value) / 10);
}

function listed(parts) {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

function treeSentences(search) {
  const tried = search.parent.filter((parent) => parent === 0).length;
  return [`The tree has ${count(search.parent.length, "state")}. In this state ${count(tried, "action")} ${tried === 1 ? "was" : "were"} tried.`];
}
