// Keyboard shortcuts: one table for the key handler, the help dialog and the tooltips of buttons.
import { byId, make } from './dom.js';

export class Shortcuts {
  // `groups` is { title: [[[key names], description, action] …] }; a key has the name that the browser uses, after its modifiers.
  constructor(groups, isDisabled) {
    this.actions = new Map();
    for (const rows of Object.values(groups)) {
      for (const [names, , action] of rows) for (const name of names) this.actions.set(name, action);
    }
    this.isDisabled = isDisabled;
    renderHelp(groups);
    document.addEventListener('keydown', (event) => this.press(event));
  }

  press(event) {
    const help = byId('help');
    if (help.open) {
      help.close();
      event.preventDefault();
      return;
    }
    if (this.isDisabled() || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
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
  const shift = event.shiftKey && key.length > 1 ? 'Shift+' : ''; // for letters and signs, the key itself depends on shift
  return `${event.altKey ? 'Alt+' : ''}${shift}${key}`;
}

function isTyping(element) {
  return element.matches('input, select, textarea') && element.type !== 'range' && element.type !== 'checkbox';
}

function renderHelp(groups) {
  const sections = Object.entries(groups).map(([title, rows]) => {
    const table = make('table');
    for (const [names, description] of rows) {
      const cell = make('td');
      cell.append(...names.map((name) => make('kbd', { text: symbol(name) })));
      table.append(make('tr', {}, cell, make('td', { text: description })));
    }
    return make('section', {}, make('h3', { text: title }), table);
  });
  byId('keys').replaceChildren(...sections);
  byId('help').addEventListener('click', () => byId('help').close());
}

function symbol(name) {
  return name.replace('ArrowLeft', '←').replace('ArrowRight', '→').replace('ArrowUp', '↑').replace('ArrowDown', '↓');
}
