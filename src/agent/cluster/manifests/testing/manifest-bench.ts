/** A manifest folder, a recording sink, and a clock that only the test advances. */
import { mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { runAtOnce } from "../../../../async/turns.ts";
import type { Facts, Logger } from "../../../../logging/logger.ts";
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../../../../model/object-source.ts";
import { listFolder } from "../folder-listing.ts";
import { ManifestFolder } from "../manifest-folder.ts";
import { jsonSteps, looksLikeJson, type ParsedManifest } from "../manifest-objects.ts";
import { ManifestReader } from "../manifest-reader.ts";
import { deliver, NO_RECORDS, type RecordMaps } from "../merge.ts";
import { manifestSteps } from "../parse-manifest.ts";

/** Parses a file at once, as the reader does in turns. */
export function parseManifest(text: string, file: string): ParsedManifest {
  const decoded = looksLikeJson(text, file) ? runAtOnce(jsonSteps(text, file, false)) : undefined;
  return decoded ?? runAtOnce(manifestSteps(text, file, {}));
}

/** A Service manifest with a final line break. */
export function serviceYaml(name: string, port = 80): string {
  return `apiVersion: v1
kind: Service
metadata:
  name: ${name}
spec:
  clusterIP: 10.96.0.1
  ports:
    - port: ${port}
`;
}

/** An EndpointSlice manifest with a final line break. */
export function sliceYaml(name: string, service: string, address = "10.1.0.1"): string {
  return `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: ${name}
  labels: { kubernetes.io/service-name: ${service} }
addressType: IPv4
ports: [{ port: 8080 }]
endpoints: [{ addresses: [${address}] }]
`;
}

export class TempFolder implements Disposable {
  readonly path = realpathSync(mkdtempSync(path.join(tmpdir(), "kpts-manifests-")));

  at(...names: string[]): string {
    return path.join(this.path, ...names);
  }

  /** Writes in place; creates directories. */
  write(name: string, text: string): void {
    mkdirSync(path.dirname(this.at(name)), { recursive: true });
    writeFileSync(this.at(name), text);
  }

  /** Writes a temporary file and renames it, as careful editors do. */
  replace(name: string, text: string): void {
    this.write(`.${path.basename(name)}.tmp`, text);
    mkdirSync(path.dirname(this.at(name)), { recursive: true });
    renameSync(this.at(`.${path.basename(name)}.tmp`), this.at(name));
  }

  remove(name: string): void {
    rmSync(this.at(name), { recursive: true, force: true });
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** Records events as short texts: `add services/default/web`. */
export class RecordingSink implements ObjectSink {
  readonly events: string[] = [];
  readonly current = new Map<string, unknown>();
  readonly #waiting = new Set<() => void>();

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    const { object } = event;
    const key = `${kind}/${"namespace" in object ? `${object.namespace}/` : ""}${object.name}`;
    const isKnown = this.current.has(key);
    if (isKnown !== (event.kind !== "add"))
      throw new Error(`${event.kind} of ${key}, which is ${isKnown ? "" : "not "}there`);
    if (event.kind === "update" && this.current.get(key) !== event.old) throw new Error(`wrong old object for ${key}`);
    if (event.kind === "delete") this.current.delete(key);
    else this.current.set(key, object);
    this.#note(`${event.kind} ${key}`);
  }

  onSynced(kind: ObjectKind): void {
    this.#note(`synced ${kind}`);
  }

  /** The events since the last call. */
  take(): string[] {
    return this.events.splice(0);
  }

  /** Waits until the condition holds, which is checked after each event and every 20 ms; rejects after the limit. */
  async until(isTrue: () => boolean, limitMs = 15_000): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const check = (): void => {
      if (isTrue()) resolve();
    };
    const timer = setTimeout(() => reject(new Error(`still waiting; events: ${this.events.join(", ")}`)), limitMs);
    const ticks = setInterval(check, 20);
    this.#waiting.add(check);
    check();
    await promise.finally(() => {
      clearTimeout(timer);
      clearInterval(ticks);
      this.#waiting.delete(check);
    });
  }

  #note(text: string): void {
    this.events.push(text);
    for (const check of this.#waiting) check();
  }
}

/** Records errors and warnings as texts. */
export class RecordingLogger implements Logger {
  readonly lines: string[] = [];
  info(): void {}
  v(level: number, message: string, facts?: Facts): void {
    this.lines.push(`v${level} ${message} ${JSON.stringify(facts)}`);
  }
  warn(message: string, facts?: Facts): void {
    this.lines.push(`warning ${message} ${JSON.stringify(facts)}`);
  }
  error(message: string, error: unknown, facts?: Facts): void {
    this.lines.push(`error ${message} ${String(error)} ${JSON.stringify(facts)}`);
  }
  with(): Logger {
    return this;
  }
  isVerbose(): boolean {
    return true;
  }
  /** Errors and warnings since the last call. */
  take(): string[] {
    return this.lines.splice(0).filter((line) => !line.startsWith("v"));
  }
}

/** Shared by all benches of a test file. */
export const sharedReader = new ManifestReader();

/** A folder that only the test refreshes. */
export class ManifestBench implements Disposable {
  readonly temp = new TempFolder();
  readonly sink = new RecordingSink();
  readonly log = new RecordingLogger();
  readonly folder: ManifestFolder;
  #nowMs = 0;
  #known: RecordMaps = NO_RECORDS;

  constructor(list = listFolder) {
    this.folder = new ManifestFolder(this.temp.path, this.log, sharedReader, list);
  }

  async load(): Promise<void> {
    await this.folder.load();
    this.#deliver();
    this.sink.take();
    this.log.take();
    // Files written just now are read again before their times are trusted.
    await this.settle();
  }

  /** Advances the clock and refreshes. @returns whether something is still changing. */
  async look(passedMs: number): Promise<boolean> {
    this.#nowMs += passedMs;
    const { isUnsettled } = await this.folder.refresh(this.#nowMs);
    this.#deliver();
    return isUnsettled;
  }

  /** Refreshes until everything has settled. @returns the events. */
  async settle(): Promise<string[]> {
    for (let passedMs = 1000; await this.look(passedMs); passedMs = 1000);
    return this.sink.take();
  }

  /** The first port of a Service of namespace `default`. */
  servicePort(name: string): number | undefined {
    return this.folder.records().services.get(`default/${name}`)?.ports[0]?.port;
  }

  problems(): string[] {
    return this.folder.problems().map(({ object, message }) => `${object}: ${message}`);
  }

  #deliver(): void {
    this.#known = deliver(this.#known, this.folder.records(), this.sink);
  }

  [Symbol.dispose](): void {
    this.temp[Symbol.dispose]();
  }
}

/** A bench whose folder initially contains these files. */
export async function manifestBench(files: Record<string, string>, list = listFolder): Promise<ManifestBench> {
  const made = new ManifestBench(list);
  for (const [name, text] of Object.entries(files)) made.temp.write(name, text);
  await made.load();
  return made;
}
