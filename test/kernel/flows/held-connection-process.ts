/**
 * Opens a TCP connection to `ADDRESS PORT` (its arguments), prints `open`, and holds it. At the first line on standard
 * input it makes the request that the serving pods know and prints their answer, or the error that the connection met; at
 * the line `reset` it ends the connection with a reset, which no kernel remembers for long.
 */
import { once } from "node:events";
import { connect } from "node:net";

const [host = "", port = ""] = process.argv.slice(2);
const socket = connect({ host, port: Number(port) });

function finish(text: string): void {
  process.stdout.write(`${text.trim()}\n`, () => process.exit(0));
}

socket.on("error", (error) => finish(error.message));
await once(socket, "connect");
process.stdout.write("open\n");

let answer = "";
socket.on("data", (chunk) => {
  answer += String(chunk);
});
socket.on("end", () => finish(answer.slice(answer.indexOf("\r\n\r\n"))));
const [command] = await once(process.stdin, "data");
if (String(command).trim() === "reset") {
  socket.resetAndDestroy();
  finish("reset");
} else socket.write("GET / HTTP/1.0\r\n\r\n");
