/**
 * The shortest program that reads the same lists: plain GETs over one TLS connection each, `JSON.parse` of everything at
 * once. Arguments: the server's URL, the file of its CA. Writes `parsed` when it is done.
 */
import { readFileSync } from "node:fs";
import { Agent, get } from "node:https";

const PATHS = ["/api/v1/services?resourceVersion=0", "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"];

const [url = "", caFile = ""] = process.argv.slice(2);
const agent = new Agent({ ca: readFileSync(caFile) });

async function itemsOf(path: string): Promise<number> {
  const chunks: Buffer[] = [];
  await new Promise<void>((resolve, reject) => {
    get(new URL(path, url), { agent, headers: { Accept: "application/json" } }, (response) => {
      response.on("data", (chunk: Buffer) => void chunks.push(chunk));
      response.on("end", resolve);
      response.on("error", reject);
    }).on("error", reject);
  });
  const list: { readonly items: readonly unknown[] } = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  return list.items.length;
}

const counts = await Promise.all(PATHS.map(itemsOf));
process.stdout.write(`parsed ${counts.join(" ")}\n`);
agent.destroy();
