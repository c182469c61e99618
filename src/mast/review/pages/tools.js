// The toolbar and the buttons to decide: each does what its key does.
import { byId, make } from './dom.js';
import { SLOWER } from './player.js';

const BUTTONS = [
  ['▶', 'Play or stop', 'Space'], ['−', 'Further in time', '-'], ['+', 'Closer in time', '+'],
  ['⇕−', 'Further in pitch', ','], ['⇕+', 'Closer in pitch', '.'], ['All', 'The whole recording', '0'],
];
const DECISIONS = [
  ['✓ Accept', 'a', 'accepted'], ['✗ Reject', 'r', 'rejected'], ['? Unsure', 'u', 'unsure'], ['Name it', 'l', ''], ['Undo', 'z', ''], ['Next ▸', 'n', ''],
];

// Draws them, and returns what brings them up to date.
export function drawTools({ palette, player, pointer, keys, recolour, setDrawing }) {
  const press = (key) => () => keys.get(key)();
  const button = ([text, words, key]) => make('button', { text, title: `${words} (${key.toLowerCase()})`, 'aria-label': words, click: press(key) });
  const draw = make('button', { text: '▭ Draw', title: 'Draw a box (d)', click: () => setDrawing(!pointer.drawing) });
  const slow = make('select', { title: 'How slow (s)', 'aria-label': 'How slow' }, ...SLOWER.map((times) => make('option', { value: times, text: times === 1 ? '× 1' : `÷ ${times}` })));
  slow.onchange = () => player.choose(Number(slow.value));
  const band = make('input', { type: 'checkbox' });
  band.onchange = () => { player.bandOnly = band.checked; };
  const gain = make('input', { type: 'range', min: -24, max: 24, step: 1, title: 'Brightness ( [ and ] )', 'aria-label': 'Brightness' });
  gain.oninput = () => { palette.gainDb = Number(gain.value); recolour(); };
  const colours = make('select', { title: 'Colours (c)', 'aria-label': 'Colours' }, ...palette.names.map((name) => make('option', { value: name, text: NAMES[name] || name })));
  colours.onchange = () => { palette.name = colours.value; recolour(); };
  const seen = make('button', { text: 'Reviewed', title: 'All that is on the screen is reviewed (v)', click: press('v') });
  byId('tools').replaceChildren(...BUTTONS.slice(0, 1).map(button), slow, make('label', {}, band, ' band'), make('span', { className: 'spring' }),
    ...BUTTONS.slice(1).map(button), make('label', {}, '☀ ', gain), colours, make('span', { className: 'spring' }), draw, seen);
  byId('decisions').replaceChildren(...DECISIONS.map(([text, key, className]) => make('button', { text, className, title: `(${key})`, click: press(key) })));
  const refresh = () => {
    gain.value = palette.gainDb;
    colours.value = palette.name;
    slow.value = player.slow;
    band.checked = player.bandOnly;
    draw.setAttribute('aria-pressed', pointer.drawing);
  };
  refresh();
  return refresh;
}

const NAMES = { magma: 'Magma', viridis: 'Viridis', gray_r: 'Ink', gray: 'Grey' };
