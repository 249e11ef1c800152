// The question, its answer while it is being proven, and the chips. Goes on in tasks.js.
'use strict';
const $ = id => document.getElementById(id), form = $('asked'), root = document.documentElement;
const fields = ['model', 'cluster', 'domains', 'workload', 'ttft', 'tpot', 'worth', 'traffic', 'rate', 'runs', 'engine', 'launch'];
const power = id => +(10 ** +$(id).value).toPrecision(2), word = x => String(+(+x).toPrecision(4));
const add = (parent, tag, text, more) => parent.appendChild(Object.assign(document.createElement(tag), {textContent: text, ...more}));
const row = (table, cells, tag) => {
  const line = add(table, 'tr', '');
  cells.forEach(cell => add(line, tag || 'td', cell));
};
// costs are rounded, bounds down, gaps up; money has the digits that commands give it
const places = x => x < 100 ? 4 : 2, fixed = x => ({minimumFractionDigits: places(x), maximumFractionDigits: places(x)});
const money = x => x.toLocaleString('en', x && x < 1e-3 ? {maximumSignificantDigits: 4} : fixed(x));
const bound = x => '$' + (Math.floor(10 ** places(x) * x) / 10 ** places(x)).toLocaleString('en', fixed(x)), cost = x => x === null ? '-' : '$' + money(x);
const percent = x => (Math.ceil(1e4 * x) / 1e2).toFixed(2) + '%';
let answer = null, asking = null, waiting = 0;

// The document of a question, or {error}; hear is told what is known before: {sight}, {progress} or {answer}. In lines, an answer that
// nothing fits is one like others, not one that a browser logs as failed
const post = async (name, body, signal, hear = () => {}) => {
  const headers = {'Content-Type': 'application/json', Accept: 'application/x-ndjson'};
  const reply = await fetch('/api/' + name, {method: 'POST', headers, body: JSON.stringify(body), signal});
  if (!reply.headers.get('Content-Type').includes('ndjson')) return reply.json();
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '', at; ;) {
    const {value, done} = await reader.read();
    if (done) throw new Error('the answer has no end');
    rest += value;
    while ((at = rest.indexOf('\n')) >= 0) {
      const said = JSON.parse(rest.slice(0, at));
      rest = rest.slice(at + 1);
      if (said.error || said.document) return said.error ? said : said.document;
      hear(said);
    }
  }
};
const refused = (box, error) => {
  box.replaceChildren();
  for (const one of error.problems) add(box, 'p', [one.place, one.message].filter(Boolean).join(': '), {className: 'bad'});
};

const scenario = () => ({
  model: $('model').value, cluster: $('cluster').value + (+$('domains').value > 1 ? '@' + $('domains').value : ''),
  workload: $('workload').value, slo: {ttft: power('ttft'), tpot: power('tpot')},
  ...(power('worth') === 1 ? {} : {prices: {chip_price_factor: power('worth')}}),
  ...($('rate').value ? {rate: +$('rate').value} : {}), ...($('runs').value === 'any' ? {} : {engine: $('runs').value}),
});
const say = () => {
  const of = $('traffic').value === STEADY ? ' ms' : ' ms (P99)';
  const said = {ttft: word(1e3 * power('ttft')) + of, tpot: word(1e3 * power('tpot')) + of, worth: word(power('worth')), domains: $('domains').value};
  for (const [id, text] of Object.entries(said)) {
    $(id + '-said').textContent = text;
    $(id).setAttribute('aria-valuetext', text);
  }
};
// Files that the user offers: contents by name, and the controls that may name one, by its ending
const mostRead = MOST_CHARACTERS, own = {}, kinds = {json: ['model', 'cluster', 'workload'], yaml: ['cluster', 'workload', 'traffic'], csv: ['traffic']};
const brought = () => ['model', 'cluster', 'workload', 'traffic'].some(id => $(id).value in own) ? {files: {...own}} : {};
const steady = () => $('traffic').value === STEADY ? {} : {traffic: $('traffic').value};
const offer = async () => {
  const box = $('owned');
  box.replaceChildren();
  for (const file of $('own').files) {
    const ending = /^[A-Za-z0-9][A-Za-z0-9._-]*\.(json|yaml|csv)$/.exec(file.name)?.[1];
    if (!ending) add(box, 'p', `${file.name}: expected a name of letters, digits and . _ - that ends in .json, .yaml or .csv`, {className: 'bad'});
    else if (file.size > mostRead) add(box, 'p', `${file.name}: has ${file.size.toLocaleString('en')} bytes; at most ${mostRead.toLocaleString('en')} are read`, {className: 'bad'});
    else {
      own[file.name] = await file.text();
      for (const id of kinds[ending]) if (![...$(id).options].some(one => one.value === file.name)) add($(id), 'option', file.name);
      const is = ending === 'csv' ? 'traffic' : ending === 'json' ? 'model' : /^domains:/m.test(own[file.name]) ? 'cluster' : '';
      if (is) $(is).value = file.name;
      add(box, 'p', is ? `${file.name}: chosen as the ${is}.` : `${file.name}: choose it as ${kinds[ending].join(', ')} above.`);
    }
  }
};

const shapes = found => {
  const counts = new Map();
  for (const {role, shape, stages} of found.layout.replicas) {
    const chips = stages.reduce((n, stage) => n + stage.chips.length, 0);
    const key = [role, chips, shape.tp, shape.ep, shape.pp, shape.attention_dp, shape.batch].join('|');
    counts.set(key, (counts.get(key) || 0) + 1);
  }
  return counts;
};
// Where each chip is used: its replica, stage, and place in the stage
const uses = found => {
  const all = new Map();
  found.layout.replicas.forEach((replica, number) => [...replica.stages, ...(replica.apart ? [replica.apart.experts] : [])].forEach((stage, index) =>
    stage.chips.forEach((chip, place) => all.set(chip, {replica, number, stage, index, place}))));
  return all;
};
const expertsOf = (found, {stage, place}) => {
  const maps = stage.expert_map && found.layout.expert_maps[stage.expert_map];
  return Object.entries(maps || {}).filter(([layer]) => +layer >= stage.layers[0] && +layer <= stage.layers[1]).map(([layer, slots]) => {
    const own = stage.layer_slots?.[layer] ?? stage.slots_per_chip;
    const start = Array.isArray(own) ? own.slice(0, place).reduce((a, b) => a + b, 0) : own * place;
    return `  layer ${layer}: ${slots.slice(start, start + (Array.isArray(own) ? own[place] : own)).join(', ')}`;
  });
};
const domainOf = (found, chip) => Object.keys(found.links.uplinks)
  .filter(name => chip.startsWith(name) && !/\d/.test(chip[name.length] ?? '')).sort((a, b) => b.length - a.length)[0] ?? '';
const describe = (found, chip, use) => {
  const gb = Object.entries(found.memory[chip] || {}).map(([kind, size]) => `  ${kind}: ${word(size / 1e9)} GB`);
  const domain = domainOf(found, chip), uplink = found.links.uplinks[domain], busiest = found.links.busiest_link;
  const links = uplink ? [`  uplinks of ${domain}: ${word(uplink.bytes_per_s / 1e9)} of ${word(uplink.capacity_bytes_per_s / 1e9)} GB/s, ${word(100 * uplink.utilisation)}%`] : [];
  if (busiest) links.push(`  busiest link of the cluster: ${busiest}${busiest.split('--').includes(chip) ? ', which is one of this chip' : ''}`);
  if (!use) return [`${chip}: not in use`, 'links:', ...links].join('\n');
  const kv = use.replica.kv.filter(one => one.chip === chip).map(one => `  ${one.tier}${one.idle ? ', idle' : ''}: ${one.sequences} sequences`);
  const experts = expertsOf(found, use);
  return [`${chip}: ${use.replica.role} replica ${use.number}, stage ${use.index}`, `layers ${use.stage.layers[0]} to ${use.stage.layers[1]}`,
    'memory:', ...gb, ...(kv.length ? ['KV:', ...kv] : []), 'links:', ...links, ...(experts.length ? ['experts:', ...experts] : [])].join('\n');
};
// One group per rack or node: one stop of the tabulator, arrows move inside
const drawChips = found => {
  const box = $('racks'), used = uses(found), racks = new Map();
  const order = new Intl.Collator('en', {numeric: true}).compare;
  for (const chip of [...new Set([...Object.keys(found.memory), ...used.keys()])].sort(order)) {
    const domain = domainOf(found, chip);
    racks.set(domain, [...(racks.get(domain) || []), chip]);
  }
  box.replaceChildren();
  for (const [domain, chips] of racks) {
    const name = domain || 'chips', group = add(box, 'div', '', {className: 'rack'});
    add(group, 'div', name);
    const line = add(group, 'div', '', {className: 'chips', role: 'group', ariaLabel: `${name}: ${chips.length} chips`});
    chips.forEach((chip, place) => {
      const use = used.get(chip), what = use ? `${use.replica.role} replica ${use.number}` : 'not in use';
      const button = add(line, 'button', chip.slice(domain.length), {type: 'button', className: use?.replica.role ?? '', title: `${chip}: ${what}`, ariaLabel: `${chip}: ${what}`, ariaPressed: 'false', tabIndex: place ? -1 : 0});
      button.addEventListener('click', () => {
        for (const one of box.querySelectorAll('[aria-pressed=true]')) one.ariaPressed = 'false';
        button.ariaPressed = 'true';
        $('chip').textContent = describe(found, chip, use);
      });
    });
    line.addEventListener('keydown', event => {
      const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key], all = [...line.children];
      if (!step) return;
      event.preventDefault();
      const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
      all.forEach(one => { one.tabIndex = one === next ? 0 : -1; });
      next.focus();
    });
  }
  $('chip').textContent = 'Choose a chip to see its layers, experts, KV, memory and links.';
};
// An answer, whole or before what stands beside it is known, or the nearest layout of answers to other targets
const show = found => {
  const e = found.evaluation, box = $('answer'), sure = found.certificate;
  box.replaceChildren();
  add(add(box, 'p', ''), 'strong', `${cost(e.usd_per_m_output_tokens)} per million output tokens`);
  if (sure) add(box, 'p', `Proven: none that the proof covers costs less than ${bound(sure.bound_usd_per_m_output_tokens)}; this one at most ${percent(sure.gap)} more.`);
  else add(box, 'p', found.misses.length ? `The nearest layout known so far; it breaks: ${found.misses.join('; ')}.` : 'The best layout known so far; it meets these targets.');
  if (!sure && found.bound) add(box, 'p', `Proven: none costs less than ${bound(found.bound)}.`);
  add(box, 'p', `${Math.round(e.output_tokens_per_s).toLocaleString('en')} output tokens/s on ${e.chips_used} of ${e.chips_total} chip${e.chips_total === 1 ? '' : 's'}; TTFT ${word(1e3 * e.ttft_s)} ms, TPOT ${word(1e3 * e.tpot_s)} ms.`);
  if (found.traffic) {
    const {runs, usd_per_m_output_tokens: paid} = found.traffic, {ttft_s: first, tpot_s: each, requests} = found.replay;
    add(box, 'p', `Replayed: ${requests.toLocaleString('en')} requests, P99 of TTFT ${word(1e3 * first.p99)} ms, of TPOT ${word(1e3 * each.p99)} ms; ${cost(paid)} per million output tokens at this rate; the targets hold in ${runs} replays.`);
  }
  if (e.bottleneck) add(box, 'p', `Limited by ${e.bottleneck}.`);
  const next = found.runner_up, kept = found.within_measured_usd_per_m_output_tokens;
  if (next) add(box, 'p', `Next best, built otherwise: ${cost(next.usd_per_m_output_tokens)}.`);
  if (kept) add(box, 'p', `Within what somebody measured: ${cost(kept)}.`);
  if (e.assumed.length) add(box, 'p', `Assumed: ${e.assumed.join('; ')}.`);
  add(box, 'p', `Basis: ${['times', 'expert_load', 'money'].filter(name => !e.provenance[name].startsWith('none: ')).map(name => `${name.replace('_', ' ')} ${e.provenance[name]}`).join('; ')}.`, {className: 'note'});
  $('shapes').replaceChildren();
  row($('shapes'), ['replicas', 'role', 'chips', 'tp', 'ep', 'pp', 'attention dp', 'batch'], 'th');
  for (const [key, count] of shapes(found)) row($('shapes'), [count, ...key.split('|')]);
  drawChips(found);
};
const ready = is => { for (const id of ['keep', 'save', 'export']) $(id).disabled = !is; };
const hear = said => {
  if (said.sight || said.answer) {
    show(said.sight ?? said.answer);
    root.dataset.seen = said.sight ? 'nearest' : 'proven';
    if (said.answer) $('state').textContent = 'Proven. Looking for the next best and for what was measured.';
    return;
  }
  const state = said.progress, cells = [state.incumbent === null ? '-' : cost(state.incumbent), state.bound === null ? '-' : bound(state.bound), state.gap === null ? '-' : percent(state.gap)];
  $('state').textContent = `Searching and proving: best ${cells[0]}, bound ${cells[1]}, gap ${cells[2]}.`;
  row($('proof'), [state.elapsed_s.toFixed(1), ...cells, state.doing]);
};
const ask = async () => {
  say();
  remember();
  if (asking) asking.abort();
  const mine = asking = new AbortController(), asked = {scenario: scenario(), gap: 0.01, ...steady(), ...brought()};
  root.dataset.state = 'asking';
  root.dataset.seen = '';
  $('state').textContent = 'Searching and proving.';
  $('exported').replaceChildren();
  $('proof').replaceChildren();
  row($('proof'), ['s', 'best', 'bound', 'gap', 'done'], 'th');
  ready(false);
  try {
    const found = await post('solve', asked, mine.signal, said => { if (mine === asking) hear(said); });
    if (mine !== asking) return;
    answer = found.error ? null : {name: 'solve', asked, found};
    if (found.error) {
      for (const id of ['shapes', 'racks', 'chip']) $(id).replaceChildren();
      refused($('answer'), found.error);
    } else show(found);
    ready(answer !== null);
    $('state').textContent = '';
    root.dataset.state = found.error ? found.error.kind : 'answered';
  } catch (error) {
    if (mine !== asking || error.name === 'AbortError') return;
    $('state').textContent = 'The server does not answer.';
    root.dataset.state = 'lost';
  }
};
