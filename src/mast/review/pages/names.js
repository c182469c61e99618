// The names people give to sounds: those known so far, and the last one said.
import { byId, make, toast } from './dom.js';

export class Names {
  constructor(known) {
    this.known = new Set(known);
    this.last = null;
  }

  // Ask for a name; resolves to text, to null for none, or to undefined where nothing was said.
  ask(before) {
    const dialog = byId('label-dialog');
    const input = byId('label');
    byId('labels').replaceChildren(...[...this.known].sort().map((label) => make('option', { value: label })));
    input.value = before || '';
    dialog.returnValue = '';
    dialog.showModal();
    input.select();
    byId('label-cancel').onclick = () => dialog.close('cancel');
    return new Promise((resolve) => {
      dialog.onclose = () => resolve(dialog.returnValue === 'ok' ? this.said(input.value.trim() || null) : undefined);
    });
  }

  // The name that was said last, or undefined where there is none.
  again() {
    if (this.last) return this.last;
    toast('Nothing was named yet: press l and say a name.');
    return undefined;
  }

  said(name) {
    if (name) this.known.add(name);
    this.last = name;
    return name;
  }
}
