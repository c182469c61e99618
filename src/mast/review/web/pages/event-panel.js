// Details and verdict history of the selected event, and the estimated precision.
import { seconds } from './axes.js';
import { byId, make } from './dom.js';
import { getJson } from './api.js';

const STATE_WORDS = { open: 'Not reviewed', accepted: 'Accepted', rejected: 'Rejected', unsure: 'Unsure' };

export function renderPanel(box) {
  const chosen = byId('chosen');
  if (!box) {
    chosen.replaceChildren(make('p', { className: 'quiet', text: 'No event is selected. Click an event, or press n for the next.' }));
    return;
  }
  const by = box.user && box.state !== 'open' ? ` by ${box.user}` : '';
  const rows = [
    ['Label', box.label || '–'],
    ['Time', `${seconds(box.start_s, 0.01)} – ${seconds(box.end_s, 0.01)}`],
    ['Frequency', box.low_hz === null ? '–' : `${(box.low_hz / 1000).toFixed(2)} – ${(box.high_hz / 1000).toFixed(2)} kHz`],
    ['Score', box.score === null ? 'drawn by a user' : box.score.toFixed(2)],
  ];
  const details = make('dl');
  for (const [name, value] of rows) details.append(make('dt', { text: name }), make('dd', { text: value }));
  const history = make('details', {}, make('summary', { text: `${box.version} ${box.version === 1 ? 'verdict' : 'verdicts'}` }), make('ol'));
  history.addEventListener('toggle', () => history.open && renderHistory(history.querySelector('ol'), box.event_id));
  chosen.replaceChildren(make('p', { className: `state ${box.state}`, text: STATE_WORDS[box.state] + by }), details);
  if (box.version) chosen.append(history);
}

async function renderHistory(list, event_id) {
  const { verdicts } = await getJson('/api/verdicts', { event_id });
  const describe = (verdict) => {
    const action = verdict.reverts ? `undid verdict ${verdict.reverts}` : STATE_WORDS[verdict.state].toLowerCase();
    const label = verdict.label ? ` as ${verdict.label}` : '';
    return `${verdict.user}: ${action}${label}, ${verdict.created_at.slice(0, 16).replace('T', ' ')} UTC`;
  };
  list.replaceChildren(...verdicts.map((verdict) => make('li', { text: describe(verdict) })));
}

const precision = { isLoading: false, isStale: false };

// Show the estimated precision. With millions of events the server needs seconds for it, so the requests take at most a
// tenth of the time; verdicts in the meantime cause one more request.
export async function updatePrecision() {
  precision.isStale = precision.isLoading;
  if (precision.isLoading) return;
  precision.isLoading = true;
  const began = performance.now();
  await renderPrecision();
  setTimeout(() => {
    precision.isLoading = false;
    if (precision.isStale) updatePrecision();
  }, 9 * (performance.now() - began));
}

async function renderPrecision() {
  const element = byId('precision');
  try {
    const { message } = await getJson('/api/precision');
    element.replaceChildren(...[message].flat().map((text) => make('p', { text })));
    element.hidden = false;
  } catch {
    element.hidden = true;
  }
}
