/** With stand-ins for apt-get and dpkg-deb, so that nothing is downloaded. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { dependencyOf, ensurePackage } from "./debian-package.ts";

const PACKAGE = { name: "tool", proof: /bin\/tool$/ };

/** `download` writes an "archive" unless the folder has a file `offline`; `--print-uris` names it. */
const APT_GET = `
case "$1" in
download)
  [ -e "$STATE/unknown" ] && exit 100
  if [ "$2" = --print-uris ]; then echo "'http://mirror/pool/tool.deb' tool_1%3a$(cat "$STATE/version")_amd64.deb 10 SHA256:0"; exit; fi
  [ -e "$STATE/offline" ] && { echo partial > half.deb.partial; echo "E: cannot fetch" >&2; exit 100; }
  echo x >> "$STATE/downloads"; touch tool_amd64.deb ;;
update) ;;
esac
`;
const DPKG_DEB = `mkdir -p "$3/bin"; [ -e "$STATE/empty" ] || cat "$STATE/version" > "$3/bin/tool"`;

interface World {
  readonly cache: string;
  /** Leaves a note for the stand-ins. */
  note(name: string, text?: string): void;
  forget(name: string): void;
  downloads(): number;
}

function worldFor(t: TestContext): World {
  const home = mkdtempSync(join(tmpdir(), "kpts-packages-"));
  const state = join(home, "state");
  mkdirSync(state);
  mkdirSync(join(home, "bin"));
  for (const [tool, text] of Object.entries({ "apt-get": APT_GET, "dpkg-deb": DPKG_DEB })) {
    writeFileSync(join(home, "bin", tool), `#!/bin/sh\nSTATE=${state}\n${text}`, { mode: 0o755 });
  }
  const { PATH } = process.env;
  process.env.PATH = `${join(home, "bin")}:${PATH}`;
  t.mock.method(process.stderr, "write", () => true);
  t.after(() => {
    process.env.PATH = PATH;
    rmSync(home, { recursive: true });
  });
  const note = (name: string, text = "") => writeFileSync(join(state, name), text);
  note("version", "1");
  return {
    cache: join(home, "cache"),
    note,
    forget: (name) => rmSync(join(state, name)),
    downloads: () =>
      existsSync(join(state, "downloads")) ? readFileSync(join(state, "downloads"), "utf8").length / 2 : 0,
  };
}

test("a package is downloaded once, prepared before it is there, and once more for each version", (t) => {
  const world = worldFor(t);
  const prepared: string[] = [];
  const prepare = (folder: string) => void prepared.push(readFileSync(join(folder, "bin/tool"), "utf8"));
  const folder = ensurePackage(world.cache, { ...PACKAGE, prepare });
  assert.equal(ensurePackage(world.cache, { ...PACKAGE, prepare }), folder);
  assert.equal(world.downloads(), 1);
  world.note("version", "2");
  const newer = ensurePackage(world.cache, { ...PACKAGE, prepare });
  assert.equal(readFileSync(join(newer, "bin/tool"), "utf8"), "2");
  assert.deepEqual(prepared, ["1", "2"]);
});

test("a download that failed says why, leaves nothing, and is repeated", (t) => {
  const world = worldFor(t);
  world.note("offline");
  assert.throws(() => ensurePackage(world.cache, PACKAGE), /apt-get download tool: E: cannot fetch/);
  assert.deepEqual(readdirSync(world.cache), []);
  world.forget("offline");
  assert.ok(existsSync(join(ensurePackage(world.cache, PACKAGE), "bin/tool")));
});

test("what a killed download left, and a folder that lost its files, are made again", (t) => {
  const world = worldFor(t);
  const folder = ensurePackage(world.cache, PACKAGE);
  rmSync(join(folder, "bin/tool"));
  mkdirSync(join(`${folder}.part`, "root/bin"), { recursive: true });
  assert.equal(ensurePackage(world.cache, PACKAGE), folder);
  assert.ok(existsSync(join(folder, "bin/tool")));
  assert.deepEqual(readdirSync(world.cache).length, 1);
});

test("a package without the file that it is for is refused", (t) => {
  const world = worldFor(t);
  world.note("empty");
  assert.throws(() => ensurePackage(world.cache, PACKAGE), /tool_amd64\.deb has no file like/);
});

test("without package lists the newest cached version serves, and without that the message says what to do", (t) => {
  const world = worldFor(t);
  const folder = ensurePackage(world.cache, PACKAGE);
  world.note("unknown");
  assert.equal(ensurePackage(world.cache, PACKAGE), folder);
  rmSync(folder, { recursive: true });
  assert.throws(() => ensurePackage(world.cache, PACKAGE), /no package tool .*apt-get update/);
});

test("a metapackage's dependency is found, and a missing one is not", (t) => {
  const world = worldFor(t);
  const bin = (process.env.PATH ?? "").split(":")[0] ?? "";
  const script = '#!/bin/sh\n[ "$4" = image ] && printf "image\\n  Depends: image-6.1-cloud\\n"\n';
  writeFileSync(join(bin, "apt-cache"), script, { mode: 0o755 });
  assert.equal(dependencyOf("image"), "image-6.1-cloud");
  assert.equal(dependencyOf("other"), undefined);
  assert.equal(world.downloads(), 0);
});
