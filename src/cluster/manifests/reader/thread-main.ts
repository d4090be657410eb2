/** Entry of the thread that reads and parses manifests. */
import { parentPort, workerData } from "node:worker_threads";
import { serveReads } from "./serve-reads.ts";

if (parentPort !== null) serveReads({ port: parentPort, ...workerData });
