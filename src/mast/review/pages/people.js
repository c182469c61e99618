// Who may review: shown to admins, who let people in and out.
import { byId, make, toast } from './dom.js';
import { ask, send } from './server.js';

export function preparePeople(about) {
  const dialog = byId('people-dialog');
  byId('people').hidden = about.role !== 'admin';
  byId('people').onclick = async () => {
    draw(await ask('/api/users'));
    dialog.showModal();
  };
  byId('people-close').onclick = () => dialog.close();
  byId('newcomer').onsubmit = (event) => {
    event.preventDefault();
    const newcomer = { name: byId('new-name').value, password: byId('new-password').value, role: byId('new-role').value };
    change('/api/users', newcomer).then(() => event.target.reset());
  };
}

async function change(path, body) {
  try {
    draw(await send(path, body));
  } catch (error) {
    toast(error.message);
  }
}

function draw({ users }) {
  const rows = users.map((user) => make('li', {}, make('span', { text: `${user.name}, ${user.role} ` }),
    make('button', { text: 'Remove', click: () => change('/api/users/remove', { name: user.name }) })));
  const empty = make('li', { text: 'Nobody has to sign in yet: the first one you let in should be you, as admin.' });
  byId('people-list').replaceChildren(...(rows.length ? rows : [empty]));
}
