// The toolbar and the verdict buttons; each triggers the action of its key.
import { byId, make } from './dom.js';
import { SLOWDOWNS } from './audio-player.js';

const BUTTONS = [
  ['▶', 'Play or stop', 'Space'], ['−', 'Zoom out in time', '-'], ['+', 'Zoom in in time', '+'],
  ['⇕−', 'Zoom out in frequency', ','], ['⇕+', 'Zoom in in frequency', '.'], ['All', 'The whole recording', '0'],
];
const DECISIONS = [
  ['✓ Accept', 'a', 'accepted'], ['✗ Reject', 'r', 'rejected'], ['? Unsure', 'u', 'unsure'], ['Label', 'l', ''], ['Undo', 'z', ''], ['Next ▸', 'n', ''],
];

// Render them, and return a function that updates them.
export function renderToolbar({ palette, player, pointer, keys, recolour, setDrawing }) {
  const press = (key) => () => keys.get(key)();
  const button = ([text, description, key]) => make('button', { text, title: `${description} (${key.toLowerCase()})`, 'aria-label': description, click: press(key) });
  const draw = make('button', { text: '▭ Draw', title: 'Draw a box (d)', click: () => setDrawing(!pointer.drawing) });
  const slow = make('select', { title: 'Playback speed (s)', 'aria-label': 'Playback speed' }, ...SLOWDOWNS.map((factor) => make('option', { value: factor, text: factor === 1 ? '× 1' : `÷ ${factor}` })));
  slow.onchange = () => player.choose(Number(slow.value));
  const band = make('input', { type: 'checkbox' });
  band.onchange = () => { player.bandOnly = band.checked; };
  const gain = make('input', { type: 'range', min: -24, max: 24, step: 1, title: 'Brightness ( [ and ] )', 'aria-label': 'Brightness' });
  gain.oninput = () => { palette.gainDb = Number(gain.value); recolour(); };
  const colours = make('select', { title: 'Colours (c)', 'aria-label': 'Colours' }, ...palette.names.map((name) => make('option', { value: name, text: COLOUR_NAMES[name] || name })));
  colours.onchange = () => { palette.name = colours.value; recolour(); };
  const reviewed = make('button', { text: 'Reviewed', title: 'Mark the visible part as fully reviewed (v)', click: press('v') });
  byId('tools').replaceChildren(...BUTTONS.slice(0, 1).map(button), slow, make('label', {}, band, ' band'), make('span', { className: 'spring' }),
    ...BUTTONS.slice(1).map(button), make('label', {}, '☀ ', gain), colours, make('span', { className: 'spring' }), draw, reviewed);
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

const COLOUR_NAMES = { magma: 'Magma', viridis: 'Viridis', gray_r: 'Ink', gray: 'Grey' };
