// User management, for admins.
import { byId, make, toast } from './dom.js';
import { getJson, send } from './api.js';

export function prepareUsers(about) {
  const dialog = byId('users-dialog');
  byId('users').hidden = about.role !== 'admin';
  byId('users').onclick = async () => {
    render(await getJson('/api/users'));
    dialog.showModal();
  };
  byId('users-close').onclick = () => dialog.close();
  byId('new-user').onsubmit = (event) => {
    event.preventDefault();
    const user = { name: byId('new-name').value, password: byId('new-password').value, role: byId('new-role').value };
    change('/api/users', user).then(() => event.target.reset());
  };
}

async function change(path, body) {
  try {
    render(await send(path, body));
  } catch (error) {
    toast(error.message);
  }
}

function render({ users }) {
  const rows = users.map((user) => make('li', {}, make('span', { text: `${user.name}, ${user.role} ` }),
    make('button', { text: 'Remove', click: () => change('/api/users/remove', { name: user.name }) })));
  const empty = make('li', { text: 'No users yet, so sign-in is disabled. Add yourself first, as admin.' });
  byId('user-list').replaceChildren(...(rows.length ? rows : [empty]));
}
