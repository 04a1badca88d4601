// Drives npm's client of Consul for the integration tests: one JSON command per line on stdin, one
// JSON reply per line on stdout, in order. A command is a method of the client by its name, such as
// kv.set, with the options to call it with; the client itself is used as its documentation shows.
'use strict';

const readline = require('node:readline');
const Consul = require('consul');

const clients = new Map();
let changes = [];

function clientOf(url) {
  if (!clients.has(url)) {
    const { hostname: host, port } = new URL(url);
    clients.set(url, new Consul({ host, port }));
  }
  return clients.get(url);
}

// Finds a method and the object that it belongs to.
function methodOf(client, name) {
  const path = name.split('.');
  const method = path.pop();
  const owner = path.reduce((part, key) => part[key], client);
  return [owner, owner[method]];
}

const commands = {
  // Begins a watch, as long as the process lives; the client goes on after errors by itself.
  watch(client, { method, ...options }) {
    const [owner, fn] = methodOf(client, method);
    const watch = client.watch({ method: fn.bind(owner), options, backoffFactor: 50, backoffMax: 500 });
    watch.on('change', (data) => changes.push(data ?? null));
    watch.on('error', (err) => console.error('watch', err));
  },

  // What the watch has reported since it was asked last.
  changes() {
    const reported = changes;
    changes = [];
    return reported;
  },
};

async function perform({ do: name, url, args }) {
  const client = clientOf(url);
  if (commands[name]) return commands[name](client, args);
  const [owner, fn] = methodOf(client, name);
  return fn.call(owner, args);
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = { result: await perform(JSON.parse(line)) ?? null };
    } catch (err) {
      answer = { error: String(err) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
