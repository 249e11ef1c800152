// Answers side by side, files to take along, what runs today, and the address that holds it all.
const kept = [];
let today = null;
const remember = () => {
  const told = new URLSearchParams(fields.map(name => [name, $(name).value]));
  if (kept.length) told.set('kept', JSON.stringify(kept.map(({name, asked: {files, ...asked}}) => [name, asked])));
  history.replaceState(null, '', '#' + told);
};

const title = ({name, asked: {scenario: s}}, number) => `${number + 1}: ${name === 'running' ? 'today' : s.cluster}, TPOT ${word(1e3 * s.slo.tpot)} ms`;
const drawKept = () => {
  const first = kept[0].found.evaluation.usd_per_m_output_tokens;
  $('kept').replaceChildren();
  row($('kept'), ['answer', 'model', 'cluster', 'workload', 'engine', 'target TTFT', 'target TPOT', '$/M output', 'gap', 'against 1'], 'th');
  kept.forEach((one, number) => {
    const s = one.asked.scenario, {evaluation, certificate} = one.found, price = evaluation.usd_per_m_output_tokens;
    row($('kept'), [title(one, number).split(',')[0], s.model, s.cluster, s.workload, s.engine ?? 'any', word(1e3 * s.slo.ttft) + ' ms', word(1e3 * s.slo.tpot) + ' ms', price ? money(price) : '-',
      certificate ? percent(certificate.gap) : '-', price && first ? (Math.round(1e3 * (price / first - 1)) / 10).toFixed(1) + '%' : '-']);
  });
  for (const [id, place] of [['from', 0], ['to', kept.length - 1]]) {
    $(id).replaceChildren();
    kept.forEach((one, number) => add($(id), 'option', title(one, number), {value: number}));
    $(id).value = place;
  }
  $('pair').hidden = kept.length < 2;
};
const compare = async () => {
  root.dataset.compared = '';
  $('words').textContent = 'Comparing.';
  const [first, second] = [$('from'), $('to')].map(one => kept[one.value]);
  const found = await post('compare', {document: first.found, second: second.found, files: {...first.asked.files, ...second.asked.files}});
  if (found.error) refused($('words'), found.error);
  else {
    const box = $('words'), figures = /^(.*?) {2,}(\S+) -> +(\S+)(.*)$/;
    const table = document.createElement('table');
    row(table, ['figure', ...['from', 'to'].map(id => title(kept[$(id).value], +$(id).value)), 'change'], 'th');
    box.replaceChildren(table);
    for (const line of found.words) {
      const cells = figures.exec(line);
      if (cells) row(table, cells.slice(1).map(cell => cell.trim()));
      else add(box, 'p', line);
    }
    for (const one of found.asked_differently) add(box, 'p', `asked differently: ${one}`);
  }
  root.dataset.compared = found.error ? 'no' : 'yes';
};
const keep = async one => {
  kept.push(one);
  drawKept();
  remember();
  if (kept.length > 1) await compare();
};

// A tape archive (ustar) of texts by path; scripts may be run
const tar = files => {
  const encoder = new TextEncoder(), parts = [];
  for (const [path, text] of Object.entries(files)) {
    const body = encoder.encode(text), head = new Uint8Array(512), put = (at, said) => head.set(encoder.encode(said), at);
    const octal = (number, digits) => number.toString(8).padStart(digits, '0') + '\0';
    const cut = path.length > 100 ? path.lastIndexOf('/') : -1;
    put(0, path.slice(cut + 1));
    put(100, octal(/\.(sh|sbatch)$/.test(path) ? 0o755 : 0o644, 7) + octal(0, 7) + octal(0, 7));
    put(124, octal(body.length, 11) + octal(Math.floor(Date.now() / 1e3), 11) + ' '.repeat(8) + '0');
    put(257, 'ustar\x0000');
    if (cut >= 0) put(345, path.slice(0, cut));
    put(148, octal(head.reduce((a, b) => a + b, 0), 6) + ' ');
    parts.push(head, body, new Uint8Array((512 - body.length % 512) % 512));
  }
  return new Blob([...parts, new Uint8Array(1024)], {type: 'application/x-tar'});
};
const download = (name, blob) => {
  const link = Object.assign(document.createElement('a'), {download: name, href: URL.createObjectURL(blob)});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};
const take = async () => {
  const box = $('exported'), target = $('target').value, path = $('path').value.trim();
  root.dataset.exported = '';
  box.replaceChildren();
  add(box, 'p', 'Writing.');
  const found = await post('export', {document: answer.found, to: target, allow_approximate: $('nearest').checked, files: answer.asked.files ?? {}, ...(path ? {model_path: path} : {})});
  if (found.error) {
    refused(box, found.error);
  } else {
    const names = Object.keys(found.files);
    if (names.length === 1) download(names[0], new Blob([found.files[names[0]]]));
    else download(`launch-${target}.tar`, tar(found.files));
    box.replaceChildren();
    add(box, 'p', `${target}: ${names.join(', ')}.`);
    const places = new Map();
    for (const one of found.approximated) places.set(one.message, [...(places.get(one.message) || []), one.place]);
    for (const [message, where] of places) add(box, 'p', `Approximated: ${where.slice(0, 3).join(', ')}${where.length > 3 ? ` and ${where.length - 3} more` : ''}: ${message}`);
    if (found.approximated.length) add(box, 'p', `Deployed: ${cost(found.evaluation.usd_per_m_output_tokens)} per million output tokens, ${percent(found.loss)} dearer.`);
    for (const note of found.notes) add(box, 'p', `Note: ${note}`);
  }
  root.dataset.exported = found.error ? 'no' : 'yes';
};

const priceToday = async () => {
  const engine = $('engine').value, asked = {scenario: {...scenario(), engine}, engine, launch: $('launch').value, ...brought()}, box = $('today');
  remember();
  root.dataset.today = '';
  today = null;
  $('keep-today').disabled = true;
  box.replaceChildren();
  add(box, 'p', 'Pricing it, and searching for what is cheaper.');
  const found = asked.launch.trim() ? await post('running', asked) : {error: {problems: [{message: 'Paste the commands that start your servers.'}]}};
  if (found.error) refused(box, found.error);
  else {
    const e = found.evaluation;
    box.replaceChildren();
    add(box, 'p', `Today: ${cost(e.usd_per_m_output_tokens)} per million output tokens, TTFT ${e.ttft_s === null ? '-' : word(1e3 * e.ttft_s)} ms, TPOT ${e.tpot_s === null ? '-' : word(1e3 * e.tpot_s)} ms.`);
    const list = add(box, 'ul', '');
    for (const line of found.words) add(list, 'li', line);
    for (const one of e.violations) add(box, 'p', `Broken: ${one.place}: ${one.message}`, {className: 'bad'});
    for (const note of found.notes) add(box, 'p', `Note: ${note}`);
    today = {name: 'running', asked, found};
  }
  $('keep-today').disabled = today === null;
  root.dataset.today = found.error ? 'no' : 'yes';
};

const lost = task => async () => {
  try { await task(); } catch { $('state').textContent = 'The server does not answer.'; }
};
$('keep').addEventListener('click', lost(() => keep(answer)));
$('keep-today').addEventListener('click', lost(() => keep(today)));
$('price').addEventListener('click', lost(priceToday));
$('export').addEventListener('click', lost(take));
$('save').addEventListener('click', () => download('layout.json', new Blob([JSON.stringify(answer.found, null, 1) + '\n'], {type: 'application/json'})));
for (const id of ['from', 'to']) $(id).addEventListener('change', lost(compare));
form.addEventListener('submit', event => event.preventDefault());
form.addEventListener('input', event => {
  if (event.target.type === 'file') return;
  say();
  clearTimeout(waiting);
  waiting = setTimeout(ask, PAUSE_MS);
});
$('own').addEventListener('change', lost(async () => {
  await offer();
  if (root.dataset.state === 'missing') await restore();
  else await ask();
}));

// What the address holds: the question, the pasted commands, and the questions of what was kept
const restore = async () => {
  const told = new URLSearchParams(location.hash.slice(1)), values = {...DEFAULTS, ...Object.fromEntries(told)};
  for (const name of fields) if (values[name] !== undefined) $(name).value = values[name];
  const missing = fields.filter(name => $(name).tagName === 'SELECT' && $(name).value !== values[name]);
  if (missing.length) {
    refused($('answer'), {problems: missing.map(name => ({place: name, message: `the address names ${values[name]}, which is not in the catalogue: offer the file again`}))});
    root.dataset.state = 'missing';
    return;
  }
  let before = [];
  try { before = JSON.parse(told.get('kept') || '[]'); } catch { /* an address cut short: the question alone */ }
  kept.length = 0;
  await Promise.all([ask(), (async () => {
    for (const [name, asked] of before) {
      const found = await post(name === 'running' ? name : 'solve', asked);
      if (!found.error) kept.push({name, asked, found});
      else add($('owned'), 'p', `An answer that was kept cannot be restored: ${found.error.problems[0].message}`);
    }
    if (kept.length) drawKept();
    if (kept.length > 1) await compare();
  })()]);
  remember();
};
addEventListener('hashchange', lost(restore));
lost(restore)();
