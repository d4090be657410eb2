/** What a proxy costs that is written in ten lines: `node traffic-pipe.ts ADDRESS PORT TO-ADDRESS TO-PORT`. */
import { connect, createServer } from "node:net";

const [host, port, toHost, toPort] = process.argv.slice(2);
const options = { allowHalfOpen: true, noDelay: true };
const server = createServer(options, (client) => {
  const endpoint = connect({ host: toHost, port: Number(toPort), ...options });
  client.on("error", () => endpoint.destroy()).pipe(endpoint);
  endpoint.on("error", () => client.destroy()).pipe(client);
});
server.listen({ host, port: Number(port), backlog: 4096 }, () => process.stdout.write("ready\n"));
