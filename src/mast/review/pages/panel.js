// What is known of the chosen sound, who decided what about it, and buttons to decide.
import { seconds } from './axes.js';
import { byId, make } from './dom.js';
import { ask } from './server.js';

const WORDS = { open: 'Nobody has decided', accepted: 'Accepted', rejected: 'Rejected', unsure: 'Unsure' };

export function drawPanel(box) {
  const chosen = byId('chosen');
  if (!box) {
    chosen.replaceChildren(make('p', { className: 'quiet', text: 'No sound is chosen. Tap one, or press n for the next.' }));
    return;
  }
  const who = box.who && box.state !== 'open' ? ` by ${box.who}` : '';
  const rows = [
    ['Label', box.label || '–'],
    ['Time', `${seconds(box.start_s, 0.01)} – ${seconds(box.end_s, 0.01)}`],
    ['Pitch', box.low_hz === null ? '–' : `${(box.low_hz / 1000).toFixed(2)} – ${(box.high_hz / 1000).toFixed(2)} kHz`],
    ['Score', box.score === null ? 'drawn by a person' : box.score.toFixed(2)],
  ];
  const facts = make('dl');
  for (const [name, value] of rows) facts.append(make('dt', { text: name }), make('dd', { text: value }));
  const past = make('details', {}, make('summary', { text: `${box.version} verdicts so far` }), make('ol'));
  past.addEventListener('toggle', () => past.open && drawHistory(past.querySelector('ol'), box.subject));
  chosen.replaceChildren(make('p', { className: `state ${box.state}`, text: WORDS[box.state] + who }), facts);
  if (box.version) chosen.append(past);
}

async function drawHistory(list, subject) {
  const { verdicts } = await ask('/api/verdicts', { subject });
  const said = (verdict) => {
    const what = verdict.undoes ? `took verdict ${verdict.undoes} back` : WORDS[verdict.state].toLowerCase();
    const label = verdict.label ? ` as ${verdict.label}` : '';
    return `${verdict.who}: ${what}${label}, ${verdict.at_utc.slice(0, 16).replace('T', ' ')} UTC`;
  };
  list.replaceChildren(...verdicts.map((verdict) => make('li', { text: said(verdict) })));
}

const precision = { asking: false, stale: false };

// How good the machine is so far, where the server can tell. With millions of sounds that takes it seconds, so it is asked
// for a tenth of the time at most, and once more when verdicts have come in meanwhile.
export async function tellPrecision() {
  precision.stale = precision.asking;
  if (precision.asking) return;
  precision.asking = true;
  const began = performance.now();
  await drawPrecision();
  setTimeout(() => {
    precision.asking = false;
    if (precision.stale) tellPrecision();
  }, 9 * (performance.now() - began));
}

async function drawPrecision() {
  const place = byId('precision');
  try {
    const { told } = await ask('/api/precision');
    place.replaceChildren(...[told].flat().map((text) => make('p', { text })));
    place.hidden = false;
  } catch {
    place.hidden = true;
  }
}
