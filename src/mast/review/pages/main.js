// The page: puts its parts together, and says what each key and button does.
import { clock } from './axes.js';
import { Desk } from './desk.js';
import { byId, make, toast } from './dom.js';
import { Editing } from './editing.js';
import { Gallery } from './gallery.js';
import { Keys, showHelp } from './keys.js';
import { Names } from './names.js';
import { drawPanel, tellPrecision } from './panel.js';
import { preparePeople } from './people.js';
import { Player } from './player.js';
import { Pointer } from './pointer.js';
import { Recordings } from './recordings.js';
import { ask, send } from './server.js';
import { Stage } from './stage.js';
import { Palette } from './tiles.js';
import { drawTools } from './tools.js';

const about = await ask('/api/about').catch((error) => {
  toast(error.status ? error.message : 'The server does not answer. Start it, and load the page again.');
  throw error;
});
const palette = new Palette(about.colours, about.steps_per_db);
const failed = (error) => toast(error.message);
const stage = new Stage(byId('spectrogram'), byId('overview'), palette, { failed });
const player = new Player({ changed: playerChanged, failed });
const desk = new Desk(about, { shown, notify: toast, state: tellOutbox, signedOut, reload });
const names = new Names(about.labels);
const gallery = new Gallery(desk, names, palette, player, { openAsk, failed });
const recordings = new Recordings((id) => open(id).catch(failed));
const editing = new Editing(stage, desk, names, { queueOf, choose, stopDrawing: () => setDrawing(false), failed });
const pointer = new Pointer(stage, { choose, place: (box, bounds) => editing.place(box, bounds), draw: (bounds) => editing.draw(bounds) });
let mode = 'recording';
let asked = null; // the queue that has led here, and the sounds it asks for, if any has

const inRecording = (action) => () => { if (mode === 'recording' && stage.recording) action(); };
const inGallery = (action) => () => { if (mode === 'gallery') action(); };
const either = (here, there) => () => (mode === 'gallery' ? there() : stage.recording && here());
const seen = (action) => inRecording(() => { action(stage.view); stage.redraw(); });
const say = (state) => either(() => decide(state), () => gallery.decide(state));

const keys = {
  Decide: [
    [['a'], 'accept', say('accepted')],
    [['r', 'Delete'], 'reject', say('rejected')],
    [['u'], 'unsure', say('unsure')],
    [['l'], 'name it', either(() => editing.label().catch(failed), () => gallery.name().catch(failed))],
    [['L'], 'name it as the one before', either(() => editing.labelAgain(), () => gallery.nameAgain())],
    [['z'], 'undo', undo],
    [['v'], 'all that is on the screen is reviewed, also where it is empty', inRecording(() => editing.reviewed(stage.view.startS, stage.view.endS))],
    [['V'], 'the whole recording is reviewed', inRecording(() => editing.reviewed(0, stage.recording.duration_s))],
    [['x'], 'it is not: every such mark on the screen is taken back', inRecording(() => editing.notReviewed())],
  ],
  Go: [
    [['n'], 'next sound', either(() => go(1, false), () => gallery.step(1, 0))],
    [['p'], 'sound before', either(() => go(-1, false), () => gallery.step(-1, 0))],
    [['f'], 'next that nobody has decided', inRecording(() => go(1, true))],
    [['q'], 'next that the queue asks for', () => nextAsk().catch(failed)],
    [['m'], 'next recording', inRecording(() => beside(1))],
    [['M'], 'recording before', inRecording(() => beside(-1))],
    [['g'], 'gallery, and back', () => setMode(mode === 'gallery' ? 'recording' : 'gallery')],
    [['e'], 'in the gallery: open the recording', inGallery(() => gallery.open())],
    [['o'], 'list of recordings', toggleList],
  ],
  Look: [
    [['ArrowLeft'], 'earlier', either(() => pan(-0.4), () => gallery.step(-1, 0))],
    [['ArrowRight'], 'later', either(() => pan(0.4), () => gallery.step(1, 0))],
    [['ArrowUp'], 'higher', either(() => lift(0.25), () => gallery.step(0, -1))],
    [['ArrowDown'], 'lower', either(() => lift(-0.25), () => gallery.step(0, 1))],
    [['+', '='], 'closer in time', seen((view) => view.zoomTime(0.5))],
    [['-'], 'further in time', seen((view) => view.zoomTime(2))],
    [['.'], 'closer in pitch', seen((view) => view.zoomBand(0.5))],
    [[','], 'further in pitch', seen((view) => view.zoomBand(2))],
    [['0'], 'all of it', seen((view) => view.showAll())],
    [['Home'], 'to the start', seen((view) => view.showTime(0, view.spanS))],
    [['End'], 'to the end', seen((view) => view.showTime(view.durationS - view.spanS, view.durationS))],
    [[')', ']'], 'brighter', () => setGain(palette.gainDb + 3)],
    [['(', '['], 'darker', () => setGain(palette.gainDb - 3)],
    [['c'], 'other colours', () => { palette.next(); recolour(); }],
    [['h'], 'hide or show what is rejected', inRecording(() => { stage.showsRejected = !stage.showsRejected; stage.redraw(); })],
  ],
  Listen: [
    [['Space'], 'play or stop', either(play, () => gallery.play())],
    [['b'], 'only the band of the sound, or all', () => { player.bandOnly = !player.bandOnly; refreshTools(); }],
    [['s'], 'slower', () => { slower(1); }],
    [['S'], 'faster', () => { slower(-1); }],
  ],
  Boxes: [
    [['d'], 'draw: drag on the picture (or hold shift)', inRecording(() => setDrawing(!pointer.drawing))],
    [['D'], 'a new box in the middle', inRecording(() => editing.drawInMiddle())],
    [['Alt+arrows'], 'move the box', null],
    [['Shift+arrows'], 'move its end or its top', null],
    [['Escape'], 'choose nothing', inRecording(() => { setDrawing(false); pointer.cancelDrag(); choose(null); })],
  ],
  Help: [[['?'], 'these keys', showHelp]],
};
const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const pressed = new Keys(keys, () => Boolean(document.querySelector('dialog[open]')));
for (const [arrow, [right, up]] of Object.entries(arrows)) {
  pressed.actions.set(`Alt+${arrow}`, inRecording(() => editing.nudge(right, up, false)));
  pressed.actions.set(`Shift+${arrow}`, inRecording(() => editing.nudge(right, up, true)));
}
const refreshTools = drawTools({ palette, player, stage, pointer, keys: pressed.actions, recolour, setDrawing });

// The queue that has asked for this box; of the sounds beside those it meant, none has.
function queueOf(box) {
  return asked && (box.kind === 'span' || asked.subjects.includes(box.subject)) ? asked.queue : null;
}

function decide(state) {
  const box = stage.chosenBox;
  if (!box) {
    toast('Choose a sound first: tap it, or press n.');
    return;
  }
  desk.decide(box, { state }, queueOf(box));
  const left = asked && asked.subjects.map((subject) => stage.boxes.get(subject)).find((other) => other?.state === 'open');
  if (left) choose(left);
  else if (queueOf(box)) nextAsk().catch(failed);
  else go(1, true);
}

function undo() {
  const back = desk.undo();
  if (!back || mode === 'gallery') return;
  if (!stage.recording || back.recording_id !== stage.recording.recording_id) open(back.recording_id, back.subject).catch(failed);
  else choose(stage.boxes.get(back.subject) || null);
}

// A box has changed, here or elsewhere.
function shown(box) {
  if (stage.recording && box.recording_id === stage.recording.recording_id) {
    const known = stage.boxes.get(box.subject);
    stage.boxes.put({ score: null, ...known, ...box });
    if (box.subject === stage.chosen) drawPanel(stage.chosenBox);
    stage.redraw();
  }
  gallery.shown(box);
  tellProgress();
}

function choose(box) {
  stage.chosen = box ? box.subject : null;
  if (box) stage.view.reveal(box);
  drawPanel(stage.chosenBox);
  byId('decisions').hidden = !box;
  stage.redraw();
}

function go(step, onlyOpen) {
  const next = stage.boxes.neighbour(stage.chosenBox, step, stage.view.startS, onlyOpen);
  if (next) choose(next);
  else if (onlyOpen && !stage.boxes.neighbour(null, 1, -1, true)) toast('Every sound of this recording is decided. Press m for the next one, or V if you have seen all of it.');
  else toast(step > 0 ? 'There is no sound after this.' : 'There is no sound before this.');
}

function beside(step) {
  const id = recordings.beside(stage.recording.recording_id, step);
  if (id) open(id).catch(failed);
  else toast('There is no other recording in this list.');
}

async function nextAsk() {
  const unsent = desk.outbox.unsent().map(([, proposal]) => proposal);
  const reviewed = asked && unsent.some((proposal) => proposal.kind === 'span' && proposal.queue === asked.queue);
  const names = [...unsent.map((proposal) => proposal.subject), ...(reviewed ? asked.keys : [])];
  const without = names.slice(-150).map((name) => ['without', name]);
  const wanted = byId('queue').value;
  const { asks } = await ask(`/api/asks?${new URLSearchParams([['queue', wanted], ['count', 1], ...without])}`);
  if (!asks.length) {
    asked = null;
    toast('This queue is empty: all it asks for is decided.');
    return;
  }
  await openAsk(asks[0], wanted);
}

async function openAsk(one, from = byId('queue').value) {
  setMode('recording');
  await open(one.recording_id, one.subjects[0], one);
  asked = { queue: from, subjects: one.subjects, keys: one.keys };
  byId('why').textContent = one.why;
}

async function open(recordingId, subject = null, span = null) {
  player.stop();
  document.body.classList.remove('listed');
  if (!stage.recording || stage.recording.recording_id !== recordingId) {
    const { boxes, ...recording } = await ask('/api/recording', { recording_id: recordingId });
    stage.open(recording, desk.withUnsent(boxes, recordingId));
    setMode('recording');
    byId('title').textContent = recordingId;
    const site = recording.site ? `site ${recording.site}` : '';
    const began = recording.start_local ? `${recording.start_local.slice(0, 10)}, ${clock(recording.start_local, 0)}` : '';
    byId('clock').textContent = [site, began, `${(recording.sample_rate_hz / 1000).toFixed(1)} kHz`].filter(Boolean).join(' · ');
    recordings.draw(recordingId);
    recordings.load().catch(failed); // how much of each is decided by now
    history.replaceState(null, '', `#${encodeURIComponent(recordingId)}`);
  }
  asked = null;
  byId('why').textContent = '';
  if (span && !subject) stage.view.showTime(span.start_s, span.end_s);
  if (span && subject) stage.view.showTime((span.start_s + span.end_s) / 2 - 5, (span.start_s + span.end_s) / 2 + 5);
  choose(subject ? stage.boxes.get(subject) : null);
}

function reload(proposal) {
  if (!stage.recording || stage.recording.recording_id !== proposal.recording_id) return;
  stage.recording = null;
  open(proposal.recording_id).catch(failed);
}

function play() {
  if (player.isPlaying) player.stop();
  else player.play(stage.recording, stage.chosenBox || { start_s: stage.view.startS, end_s: stage.view.endS, low_hz: null });
}

function playerChanged() {
  stage.playing = player.isPlaying ? () => player.timeS : null;
  stage.redraw();
}

function pan(share) { stage.view.panTime(share * stage.view.spanS); stage.redraw(); }
function lift(share) { stage.view.panBand(share * stage.view.bandHz); stage.redraw(); }

function slower(step) {
  player.step(step);
  refreshTools();
}

function setGain(gainDb) {
  palette.gainDb = Math.min(Math.max(gainDb, -24), 24);
  recolour();
}

function recolour() {
  stage.redraw();
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
  stage.redraw();
}

// Where there is little room the list lies over the rest, and is closed again; elsewhere it stays until it is in the way.
function toggleList() {
  document.body.classList.toggle(matchMedia('(max-width: 1100px)').matches ? 'listed' : 'unlisted');
  stage.redraw();
}

function tellOutbox({ count, reached }) {
  const place = byId('outbox');
  place.className = count ? (reached ? 'sending' : 'waiting') : 'kept';
  place.textContent = count ? `${count} ${count === 1 ? 'verdict' : 'verdicts'} ${reached ? 'on the way' : 'wait for the server'}` : 'All kept';
  if (!count && about.precision) tellPrecision();
}

function tellProgress() {
  byId('progress').textContent = `${desk.decided.toLocaleString('en')} decided · ${about.sounds.toLocaleString('en')} sounds`;
}

function signedOut() {
  toast('You are signed out. Your verdicts are kept here: load the page again and sign in.');
}

// The recording that was open when this address was last looked at, if it names one.
function namedInAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return '';
  }
}

function prepare() {
  byId('material').textContent = about.name;
  document.title = `${about.name} – MAST review`;
  byId('who').textContent = about.who;
  byId('who').disabled = !about.signs_in;
  byId('who').onclick = () => send('/api/sign-out', {}).then(() => location.assign('/')).catch(failed);
  const queues = Object.entries(about.queues);
  byId('queue').replaceChildren(...queues.map(([name, told]) => make('option', { text: name, value: name, title: told })));
  byId('queue').title = queues[0][1];
  byId('queue').onchange = () => {
    byId('queue').title = about.queues[byId('queue').value];
    (mode === 'gallery' ? gallery.load(byId('queue').value) : nextAsk()).catch(failed);
  };
  byId('mode-recording').onclick = () => setMode('recording');
  byId('mode-gallery').onclick = () => setMode('gallery');
  byId('help-button').onclick = showHelp;
  byId('toggle-list').onclick = toggleList;
  byId('decisions').hidden = true;
  preparePeople(about);
  tellProgress();
  drawPanel(null);
  setMode('recording');
  desk.outbox.flush();
}

prepare();
await recordings.load();
const first = (recordings.rows.find((row) => row.sounds) || recordings.rows[0] || {}).recording_id;
await open(namedInAddress() || first).catch(() => first && open(first).catch(failed));
document.body.classList.add('ready');
