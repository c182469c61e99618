// Keys: one table that is obeyed, shown as help, and told by every button.
import { byId, make } from './dom.js';

export class Keys {
  // `groups` is { title: [[key names], words, action] … }; a key is written as the browser names it, after its modifiers.
  constructor(groups, isOff) {
    this.actions = new Map();
    for (const rows of Object.values(groups)) {
      for (const [names, , action] of rows) for (const name of names) this.actions.set(name, action);
    }
    this.isOff = isOff;
    drawHelp(groups);
    document.addEventListener('keydown', (event) => this.press(event));
  }

  press(event) {
    const help = byId('help');
    if (help.open) {
      help.close();
      event.preventDefault();
      return;
    }
    if (this.isOff() || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
    const action = this.actions.get(nameOf(event));
    if (!action) return;
    event.preventDefault();
    action();
  }
}

export function showHelp() {
  byId('help').showModal();
}

function nameOf(event) {
  const key = event.key === ' ' ? 'Space' : event.key;
  const shift = event.shiftKey && key.length > 1 ? 'Shift+' : ''; // of letters and signs, it is in the letter
  return `${event.altKey ? 'Alt+' : ''}${shift}${key}`;
}

function isTyping(element) {
  return element.matches('input, select, textarea') && element.type !== 'range' && element.type !== 'checkbox';
}

function drawHelp(groups) {
  const sections = Object.entries(groups).map(([title, rows]) => {
    const table = make('table');
    for (const [names, words] of rows) {
      const cell = make('td');
      cell.append(...names.map((name) => make('kbd', { text: shown(name) })));
      table.append(make('tr', {}, cell, make('td', { text: words })));
    }
    return make('section', {}, make('h3', { text: title }), table);
  });
  byId('keys').replaceChildren(...sections);
  byId('help').addEventListener('click', () => byId('help').close());
}

function shown(name) {
  return name.replace('ArrowLeft', '←').replace('ArrowRight', '→').replace('ArrowUp', '↑').replace('ArrowDown', '↓');
}
