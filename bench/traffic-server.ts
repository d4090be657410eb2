/** The endpoint: `node traffic-server.ts ADDRESS PORT`. Does what the first byte of a connection says; see OPENING. */
import { createServer, type Socket } from "node:net";
import { OPENING } from "./traffic-figures.ts";

const CHUNK = Buffer.alloc(262_144, 1);

function sendForever(socket: Socket): void {
  while (!socket.destroyed && socket.write(CHUNK));
}

const server = createServer({ noDelay: true }, (socket) => {
  socket.on("error", () => {});
  socket.once("data", (first) => {
    const opening = first.toString("latin1", 0, 1);
    if (opening === OPENING.connections) socket.end("x");
    else if (opening === OPENING.download) {
      socket.on("drain", () => sendForever(socket));
      sendForever(socket);
    } else if (opening === OPENING.answers) {
      socket.write(first);
      socket.on("data", (chunk) => socket.write(chunk));
    } else socket.on("data", () => {});
  });
});
const [host, port] = process.argv.slice(2);
server.listen({ host, port: Number(port), backlog: 4096 }, () => process.stdout.write("ready\n"));
