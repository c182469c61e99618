// The review page: creates its components and defines the action of each key and button.
import { clock } from './axes.js';
import { DecisionStore } from './decisions.js';
import { byId, make, toast } from './dom.js';
import { BoxEditor } from './box-editor.js';
import { Gallery } from './gallery.js';
import { Shortcuts, showHelp } from './shortcuts.js';
import { LabelPicker } from './label-picker.js';
import { renderPanel, updatePrecision } from './event-panel.js';
import { prepareUsers } from './users.js';
import { AudioPlayer } from './audio-player.js';
import { PointerTools } from './pointer-tools.js';
import { RecordingList } from './recording-list.js';
import { getJson, send } from './api.js';
import { SpectrogramCanvas } from './spectrogram-canvas.js';
import { Palette } from './tile-layer.js';
import { renderToolbar } from './toolbar.js';

const QUEUE_TITLES = { 'random-sample': 'audit' };

const about = await getJson('/api/about').catch((error) => {
  toast(error.status ? error.message : 'The server does not respond. Start it and reload the page.');
  throw error;
});
const palette = new Palette(about.colours, about.steps_per_db);
const failed = (error) => toast(error.message);
const canvas = new SpectrogramCanvas(byId('spectrogram'), byId('overview'), palette, { failed });
const player = new AudioPlayer({ changed: playerChanged, failed });
const decisions = new DecisionStore(about, { shown, notify: toast, state: renderOutbox, signedOut, reload });
const labels = new LabelPicker(about.labels);
const gallery = new Gallery(decisions, labels, palette, player, { openItem, failed });
const recordings = new RecordingList((id) => open(id).catch(failed));
const editor = new BoxEditor(canvas, decisions, labels, { queueOf, choose, stopDrawing: () => setDrawing(false), failed });
const pointer = new PointerTools(canvas, { choose, place: (box, bounds) => editor.place(box, bounds), draw: (bounds) => editor.draw(bounds) });
let mode = 'recording';
let activeItem = null; // the queue item that is shown: its queue, event ids and keys

const inRecording = (action) => () => { if (mode === 'recording' && canvas.recording) action(); };
const inGallery = (action) => () => { if (mode === 'gallery') action(); };
const either = (here, there) => () => (mode === 'gallery' ? there() : canvas.recording && here());
const onView = (action) => inRecording(() => { action(canvas.view); canvas.redraw(); });
const verdict = (state) => either(() => decide(state), () => gallery.decide(state));

const keys = {
  Decide: [
    [['a'], 'accept', verdict('accepted')],
    [['r', 'Delete'], 'reject', verdict('rejected')],
    [['u'], 'unsure', verdict('unsure')],
    [['l'], 'add a label', either(() => editor.label().catch(failed), () => gallery.label().catch(failed))],
    [['L'], 'repeat the last label', either(() => editor.labelAgain(), () => gallery.labelAgain())],
    [['z'], 'undo', undo],
    [['v'], 'mark the visible part as fully reviewed', inRecording(() => editor.reviewed(canvas.view.startS, canvas.view.endS))],
    [['V'], 'mark the whole recording as fully reviewed', inRecording(() => editor.reviewed(0, canvas.recording.duration_s))],
    [['x'], 'remove the reviewed marks in the visible part', inRecording(() => editor.notReviewed())],
  ],
  Navigate: [
    [['n'], 'next event', either(() => go(1, false), () => gallery.step(1, 0))],
    [['p'], 'previous event', either(() => go(-1, false), () => gallery.step(-1, 0))],
    [['f'], 'next event without a verdict', inRecording(() => go(1, true))],
    [['q'], 'next item of the queue', () => nextItem().catch(failed)],
    [['m'], 'next recording', inRecording(() => beside(1))],
    [['M'], 'previous recording', inRecording(() => beside(-1))],
    [['g'], 'switch between gallery and recording', () => setMode(mode === 'gallery' ? 'recording' : 'gallery')],
    [['e'], 'in the gallery: open the recording', inGallery(() => gallery.open())],
    [['o'], 'show or hide the list of recordings', toggleList],
  ],
  View: [
    [['ArrowLeft'], 'earlier', either(() => pan(-0.4), () => gallery.step(-1, 0))],
    [['ArrowRight'], 'later', either(() => pan(0.4), () => gallery.step(1, 0))],
    [['ArrowUp'], 'higher', either(() => lift(0.25), () => gallery.step(0, -1))],
    [['ArrowDown'], 'lower', either(() => lift(-0.25), () => gallery.step(0, 1))],
    [['+', '='], 'zoom in in time', onView((view) => view.zoomTime(0.5))],
    [['-'], 'zoom out in time', onView((view) => view.zoomTime(2))],
    [['.'], 'zoom in in frequency', onView((view) => view.zoomBand(0.5))],
    [[','], 'zoom out in frequency', onView((view) => view.zoomBand(2))],
    [['0'], 'whole recording', onView((view) => view.showAll())],
    [['Home'], 'go to the start', onView((view) => view.showTime(0, view.spanS))],
    [['End'], 'go to the end', onView((view) => view.showTime(view.durationS - view.spanS, view.durationS))],
    [[')', ']'], 'brighter', () => setGain(palette.gainDb + 3)],
    [['(', '['], 'darker', () => setGain(palette.gainDb - 3)],
    [['c'], 'next colour map', () => { palette.next(); recolour(); }],
    [['h'], 'hide or show rejected events', inRecording(() => { canvas.showsRejected = !canvas.showsRejected; canvas.redraw(); })],
  ],
  Listen: [
    [['Space'], 'play or stop', either(play, () => gallery.play())],
    [['b'], 'play only the frequency band, or all frequencies', () => { player.bandOnly = !player.bandOnly; refreshTools(); }],
    [['s'], 'slower', () => { slower(1); }],
    [['S'], 'faster', () => { slower(-1); }],
  ],
  Boxes: [
    [['d'], 'draw a box: drag on the spectrogram (or hold shift)', inRecording(() => setDrawing(!pointer.drawing))],
    [['D'], 'add a box in the centre', inRecording(() => editor.drawInMiddle())],
    [['Alt+arrows'], 'move the box', null],
    [['Shift+arrows'], 'move its end or its top edge', null],
    [['Escape'], 'clear the selection', inRecording(() => { setDrawing(false); pointer.cancelDrag(); choose(null); })],
  ],
  Help: [[['?'], 'show these keys', showHelp]],
};
const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const shortcuts = new Shortcuts(keys, () => Boolean(document.querySelector('dialog[open]')));
for (const [arrow, [right, up]] of Object.entries(arrows)) {
  shortcuts.actions.set(`Alt+${arrow}`, inRecording(() => editor.nudge(right, up, false)));
  shortcuts.actions.set(`Shift+${arrow}`, inRecording(() => editor.nudge(right, up, true)));
}
const refreshTools = renderToolbar({ palette, player, canvas, pointer, keys: shortcuts.actions, recolour, setDrawing });

// The queue that listed this box; null for other events in the same recording.
function queueOf(box) {
  return activeItem && (box.kind === 'span' || activeItem.event_ids.includes(box.event_id)) ? activeItem.queue : null;
}

function decide(state) {
  const box = canvas.chosenBox;
  if (!box) {
    toast('Select an event first: click it, or press n.');
    return;
  }
  decisions.decide(box, { state }, queueOf(box));
  const left = activeItem && activeItem.event_ids.map((event_id) => canvas.boxes.get(event_id)).find((other) => other?.state === 'open');
  if (left) choose(left);
  else if (queueOf(box)) nextItem().catch(failed);
  else go(1, true);
}

function undo() {
  const restored = decisions.undo();
  if (!restored || mode === 'gallery') return;
  if (!canvas.recording || restored.recording_id !== canvas.recording.recording_id) open(restored.recording_id, restored.event_id).catch(failed);
  else choose(canvas.boxes.get(restored.event_id) || null);
}

// Update the page after a change of a box, here or by another user.
function shown(box) {
  if (canvas.recording && box.recording_id === canvas.recording.recording_id) {
    const previous = canvas.boxes.get(box.event_id);
    canvas.boxes.put({ score: null, ...previous, ...box });
    if (box.event_id === canvas.chosen) renderPanel(canvas.chosenBox);
    canvas.redraw();
  }
  gallery.shown(box);
  renderProgress();
}

function choose(box) {
  canvas.chosen = box ? box.event_id : null;
  if (box) canvas.view.reveal(box);
  renderPanel(canvas.chosenBox);
  byId('decisions').hidden = !box;
  canvas.redraw();
}

function go(step, onlyOpen) {
  const next = canvas.boxes.neighbour(canvas.chosenBox, step, canvas.view.startS, onlyOpen);
  if (next) choose(next);
  else if (onlyOpen && !canvas.boxes.neighbour(null, 1, -1, true)) toast('All events of this recording are decided. Press V if you have reviewed all of it, or m for the next recording.');
  else toast(step > 0 ? 'This is the last event.' : 'This is the first event.');
}

function beside(step) {
  const id = recordings.neighbour(canvas.recording.recording_id, step);
  if (id) open(id).catch(failed);
  else toast('There are no more recordings in this list.');
}

async function nextItem() {
  const unsent = decisions.outbox.unsent().map(([, proposal]) => proposal);
  const reviewed = activeItem && unsent.some((proposal) => proposal.kind === 'span' && proposal.queue === activeItem.queue);
  const names = [...unsent.map((proposal) => proposal.event_id), ...(reviewed ? activeItem.keys : [])];
  const without = names.slice(-150).map((name) => ['without', name]);
  const queue = byId('queue').value;
  const { items } = await getJson(`/api/queue-items?${new URLSearchParams([['queue', queue], ['count', 1], ...without])}`);
  if (!items.length) {
    activeItem = null;
    toast('This queue is empty: all its items are decided.');
    return;
  }
  await openItem(items[0], queue);
}

async function openItem(item, queue = byId('queue').value) {
  setMode('recording');
  await open(item.recording_id, item.event_ids[0], item);
  activeItem = { queue, event_ids: item.event_ids, keys: item.keys };
  byId('reason').textContent = item.reason;
}

async function open(recordingId, event_id = null, span = null) {
  player.stop();
  document.body.classList.remove('listed');
  if (!canvas.recording || canvas.recording.recording_id !== recordingId) {
    const { boxes, ...recording } = await getJson('/api/recording', { recording_id: recordingId });
    canvas.open(recording, decisions.withUnsent(boxes, recordingId));
    setMode('recording');
    byId('title').textContent = recordingId;
    const site = recording.site ? `site ${recording.site}` : '';
    const start = recording.start_local ? `${recording.start_local.slice(0, 10)}, ${clock(recording.start_local, 0)}` : '';
    byId('clock').textContent = [site, start, `${(recording.sample_rate_hz / 1000).toFixed(1)} kHz`].filter(Boolean).join(' · ');
    recordings.draw(recordingId);
    recordings.load().catch(failed); // update the counts of decided events
    history.replaceState(null, '', `#${encodeURIComponent(recordingId)}`);
  }
  activeItem = null;
  byId('reason').textContent = '';
  if (span && !event_id) canvas.view.showTime(span.start_s, span.end_s);
  if (span && event_id) canvas.view.showTime((span.start_s + span.end_s) / 2 - 5, (span.start_s + span.end_s) / 2 + 5);
  choose(event_id ? canvas.boxes.get(event_id) : null);
}

function reload(proposal) {
  if (!canvas.recording || canvas.recording.recording_id !== proposal.recording_id) return;
  canvas.recording = null;
  open(proposal.recording_id).catch(failed);
}

function play() {
  if (player.isPlaying) player.stop();
  else player.play(canvas.recording, canvas.chosenBox || { start_s: canvas.view.startS, end_s: canvas.view.endS, low_hz: null });
}

function playerChanged() {
  canvas.playing = player.isPlaying ? () => player.timeS : null;
  canvas.redraw();
}

function pan(fraction) { canvas.view.panTime(fraction * canvas.view.spanS); canvas.redraw(); }
function lift(fraction) { canvas.view.panBand(fraction * canvas.view.bandHz); canvas.redraw(); }

function slower(step) {
  player.step(step);
  refreshTools();
}

function setGain(gainDb) {
  palette.gainDb = Math.min(Math.max(gainDb, -24), 24);
  recolour();
}

function recolour() {
  canvas.redraw();
  gallery.redraw();
  refreshTools();
}

function setDrawing(on) {
  pointer.setDrawing(on);
  refreshTools();
}

function setMode(next) {
  const changed = mode !== next;
  mode = next;
  document.body.dataset.mode = next;
  byId('recording-mode').hidden = byId('panel').hidden = next === 'gallery';
  byId('gallery-mode').hidden = next !== 'gallery';
  for (const name of ['recording', 'gallery']) byId(`mode-${name}`).setAttribute('aria-pressed', name === next);
  if (changed && next === 'gallery') {
    player.stop();
    gallery.load(byId('queue').value).catch(failed);
  }
  canvas.redraw();
}

// On narrow screens the list is an overlay, closed by default; on wide screens it is a column, open by default.
function toggleList() {
  document.body.classList.toggle(matchMedia('(max-width: 1100px)').matches ? 'listed' : 'unlisted');
  canvas.redraw();
}

function renderOutbox({ count, isOnline }) {
  const element = byId('outbox');
  element.className = count ? (isOnline ? 'sending' : 'waiting') : 'saved';
  element.textContent = count ? `${count} ${count === 1 ? 'verdict' : 'verdicts'} ${isOnline ? 'being sent' : 'waiting for the server'}` : 'All saved';
  if (!count && about.precision) updatePrecision();
}

function renderProgress() {
  byId('progress').textContent = `${decisions.decided.toLocaleString('en')} decided · ${about.sounds.toLocaleString('en')} ${about.sounds === 1 ? 'event' : 'events'}`;
}

function signedOut() {
  toast('You are signed out. Unsent verdicts stay in this browser: reload the page and sign in.');
}

// The recording id in the fragment of the address, if any.
function recordingInAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return '';
  }
}

function prepare() {
  byId('material').textContent = about.name;
  document.title = `${about.name} – MAST review`;
  byId('user').textContent = about.user;
  byId('user').disabled = !about.signs_in;
  byId('user').onclick = () => send('/api/sign-out', {}).then(() => location.assign('/')).catch(failed);
  const queues = Object.entries(about.queues);
  byId('queue').replaceChildren(...queues.map(([name, description]) => make('option', { text: QUEUE_TITLES[name] || name, value: name, title: description })));
  byId('queue').title = queues[0][1];
  byId('queue').onchange = () => {
    byId('queue').title = about.queues[byId('queue').value];
    (mode === 'gallery' ? gallery.load(byId('queue').value) : nextItem()).catch(failed);
  };
  byId('mode-recording').onclick = () => setMode('recording');
  byId('mode-gallery').onclick = () => setMode('gallery');
  byId('help-button').onclick = showHelp;
  byId('toggle-list').onclick = toggleList;
  byId('decisions').hidden = true;
  prepareUsers(about);
  renderProgress();
  renderPanel(null);
  setMode('recording');
  decisions.outbox.flush();
}

prepare();
await recordings.load();
const first = (recordings.rows.find((row) => row.sounds) || recordings.rows[0] || {}).recording_id;
await open(recordingInAddress() || first).catch(() => first && open(first).catch(failed));
document.body.classList.add('ready');
