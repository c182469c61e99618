// Dialog for the label of an event, with all labels in use and the last label.
import { byId, make, toast } from './dom.js';

export class LabelPicker {
  constructor(labels) {
    this.labels = new Set(labels);
    this.last = null;
  }

  // Open the dialog; resolves to the label, to null for an empty label, or to undefined if cancelled.
  pick(current) {
    const dialog = byId('label-dialog');
    const input = byId('label');
    byId('labels').replaceChildren(...[...this.labels].sort().map((label) => make('option', { value: label })));
    input.value = current || '';
    dialog.returnValue = '';
    dialog.showModal();
    input.select();
    byId('label-cancel').onclick = () => dialog.close('cancel');
    return new Promise((resolve) => {
      dialog.onclose = () => resolve(dialog.returnValue === 'ok' ? this.remember(input.value.trim() || null) : undefined);
    });
  }

  // The last label, or undefined if there is none.
  repeat() {
    if (this.last) return this.last;
    toast('No label to repeat yet: press l to add a label.');
    return undefined;
  }

  remember(label) {
    if (label) this.labels.add(label);
    this.last = label;
    return label;
  }
}
