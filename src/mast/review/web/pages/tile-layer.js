// The spectrogram as tiles. The server sends grey tiles (levels above the background); the page applies the colour map, so
// that changes of gain and colours are immediate and need no request.
import { fetchBlob } from './api.js';

export const TILE_WIDTH = 512;
export const TILE_HEIGHT = 512;
const MAX_REQUESTS = 4;
const MAX_IMAGES = 160;
const QUIETEST_DB = 8;
const RANGE_DB = 24;

export class Palette {
  constructor(colours, stepsPerDb) {
    this.colours = colours;
    this.stepsPerDb = stepsPerDb;
    this.names = Object.keys(colours);
    this.name = this.names[0];
    this.gainDb = 0;
  }

  get key() { return `${this.name} ${this.gainDb}`; }

  next() {
    this.name = this.names[(this.names.indexOf(this.name) + 1) % this.names.length];
  }

  // One ABGR colour for each of the 256 values of a tile.
  table() {
    if (this.tableKey === this.key) return this.colourTable;
    const chosen = this.colours[this.name];
    this.colourTable = Uint32Array.from({ length: 256 }, (_, value) => {
      const fraction = (value / this.stepsPerDb - QUIETEST_DB + this.gainDb) / RANGE_DB;
      const [red, green, blue] = chosen[Math.round(Math.min(Math.max(fraction, 0), 1) * 255)];
      return (255 << 24) | (blue << 16) | (green << 8) | red;
    });
    this.tableKey = this.key;
    return this.colourTable;
  }
}

// The grey values of a tile, and a canvas with the coloured tile.
export class TileImage {
  constructor(bitmap) {
    this.canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    this.context = this.canvas.getContext('2d', { willReadFrequently: true });
    this.context.drawImage(bitmap, 0, 0);
    const { data } = this.context.getImageData(0, 0, bitmap.width, bitmap.height);
    this.grey = Uint8Array.from({ length: bitmap.width * bitmap.height }, (_, at) => data[4 * at]);
  }

  coloured(palette) {
    if (this.colouredAs !== palette.key) {
      const table = palette.table();
      const pixels = new Uint32Array(this.grey.length);
      for (let at = 0; at < pixels.length; at++) pixels[at] = table[this.grey[at]];
      const data = new Uint8ClampedArray(pixels.buffer);
      this.context.putImageData(new ImageData(data, this.canvas.width, this.canvas.height), 0, 0);
      this.colouredAs = palette.key;
    }
    return this.canvas;
  }
}

export async function fetchTileImage(values, signal) {
  const blob = await fetchBlob('/api/tile', values, signal);
  return new TileImage(await createImageBitmap(blob, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' }));
}

export class TileLayer {
  constructor(recording, palette, changed, failed) {
    Object.assign(this, { recording, palette, changed, failed });
    this.images = new Map();
    this.pending = new Map();
    this.failedKeys = new Set();
    this.wanted = [];
  }

  draw(context, view) {
    const wanted = tilesIn(view, this.recording);
    for (const entry of this.images.values()) this.drawOne(context, view, entry); // tiles of other zoom levels, until the wanted ones are loaded
    for (const tile of wanted) {
      const entry = this.images.get(tile.key);
      if (!entry) continue;
      this.images.delete(tile.key);
      this.images.set(tile.key, entry); // the least recently used tile is removed first
      this.drawOne(context, view, entry);
    }
    this.wanted = wanted;
    this.fetchNext();
  }

  drawOne(context, view, { tile, image }) {
    if (tile.end_s <= view.startS || tile.start_s >= view.endS || tile.high_hz <= view.lowHz || tile.low_hz >= view.highHz) return;
    const [left, right, top, bottom] = [view.x(tile.start_s), view.x(tile.end_s), view.y(tile.high_hz), view.y(tile.low_hz)];
    context.drawImage(image.coloured(this.palette), left, top, right - left, bottom - top);
  }

  fetchNext() {
    const keys = new Set(this.wanted.map((tile) => tile.key));
    for (const [key, { abort }] of this.pending) if (!keys.has(key)) abort.abort();
    for (const tile of this.wanted) {
      if (this.pending.size >= MAX_REQUESTS) return;
      if (!this.images.has(tile.key) && !this.pending.has(tile.key) && !this.failedKeys.has(tile.key)) this.fetchOne(tile);
    }
  }

  async fetchOne(tile) {
    const abort = new AbortController();
    this.pending.set(tile.key, { abort });
    const { key, ...values } = tile;
    try {
      const image = await fetchTileImage({ recording_id: this.recording.recording_id, ...values }, abort.signal);
      this.images.set(key, { tile, image });
      while (this.images.size > MAX_IMAGES) this.images.delete(this.images.keys().next().value);
    } catch (error) {
      if (error.status) {
        this.failedKeys.add(key);
        this.failed(error);
      }
    }
    this.pending.delete(key);
    this.changed();
  }
}

// The tiles of a view on a grid with power-of-two sizes, nearest to the centre first, with one beyond the right edge.
export function tilesIn(view, recording) {
  const topHz = recording.sample_rate_hz / 2;
  const tileS = 2 ** Math.floor(Math.log2((TILE_WIDTH * view.spanS) / view.plotWidth));
  const octaves = Math.max(0, Math.round(Math.log2((topHz * view.plotHeight) / (TILE_HEIGHT * view.bandHz))));
  const tileHz = topHz / 2 ** octaves;
  const tiles = [];
  for (let column = Math.floor(view.startS / tileS); column * tileS < view.endS + tileS / 2; column++) {
    if (column * tileS >= recording.duration_s) break;
    for (let row = Math.floor(view.lowHz / tileHz); row * tileHz < view.highHz && row < 2 ** octaves; row++) {
      const [start_s, low_hz] = [column * tileS, row * tileHz];
      const tile = { start_s, end_s: start_s + tileS, low_hz, high_hz: low_hz + tileHz, width: TILE_WIDTH, height: TILE_HEIGHT };
      tiles.push({ key: `${tileS} ${column} ${octaves} ${row}`, ...tile });
    }
  }
  const middleS = (view.startS + view.endS) / 2;
  const distance = (tile) => Math.abs((tile.start_s + tile.end_s) / 2 - middleS);
  return tiles.sort((a, b) => distance(a) - distance(b));
}
