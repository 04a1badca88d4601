// Drives eureka-js-client for the integration tests: one JSON command per line on stdin, one JSON
// reply per line on stdout, in order. The client itself is used as its documentation shows.
'use strict';

const readline = require('node:readline');
const { Eureka } = require('eureka-js-client');

// The client's log goes to stderr: stdout belongs to the replies.
const log = (level) => (...parts) => console.error(level, ...parts);
const logger = { warn: log('warn'), info: log('info'), debug: () => {}, error: log('error'), level: () => {} };

let client;

function configuration({ url, app, id, lease, delta }) {
  return {
    logger,
    shouldUseDelta: Boolean(delta),
    instance: {
      instanceId: id,
      app,
      hostName: '127.0.0.1',
      ipAddr: '127.0.0.1',
      vipAddress: app,
      port: { $: 8080, '@enabled': 'true' },
      dataCenterInfo: { '@class': 'com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo', name: 'MyOwn' },
      leaseInfo: { renewalIntervalInSecs: 1, durationInSecs: lease },
    },
    eureka: {
      serviceUrls: { default: [`${url}apps/`] },
      heartbeatInterval: 1000,
      registryFetchInterval: 500,
      filterUpInstances: false,
    },
  };
}

const called = (fn) => new Promise((resolve, reject) => {
  fn((err) => (err ? reject(err) : resolve({})));
});

const commands = {
  async start(command) {
    client = new Eureka(configuration(command));
    return called((done) => client.start(done));
  },

  async discover({ app }) {
    const instances = {};
    for (const { instanceId, status } of client.getInstancesByAppId(app)) instances[instanceId] = status;
    return { instances };
  },

  async stop() {
    return called((done) => client.stop(done));
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let answer;
    try {
      answer = await commands[command.do](command);
    } catch (err) {
      answer = { error: String(err) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
