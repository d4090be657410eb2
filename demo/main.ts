/** `npm start`: the demo, from the checkout. It is not part of the program that is built and shipped. */
import { runDemo } from "./run-demo.ts";

process.exitCode = await runDemo(process.argv.slice(2));
