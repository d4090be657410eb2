import assert from "node:assert/strict";
import { test } from "node:test";
import { interpret } from "../../../../testkit/fakes/bpf/interpreter.ts";
import { MemoryMap } from "../../../../testkit/fakes/bpf/memory-map.ts";
import { SOCK_ADDR, socketContext, USER_PORT_WORD } from "../contexts.ts";
import { u32, u64 } from "../layout.ts";
import type { MapDefinition } from "../map-definition.ts";
import { Assembler, AssemblyError } from "./assembler.ts";
import { disassemble } from "./disassemble.ts";

const COUNTS: MapDefinition = { name: "counts", type: "hash", keySize: 8, valueSize: 8, maxEntries: 4 };

/** Looks `counts[protocol]` up and returns it, or 7 when there is none. */
function lookupProgram() {
  const a = new Assembler("count", socketContext("connect4"));
  const key = a.slot("key", COUNTS.keySize);
  const absent = a.label("absent");
  a.clear(key);
  a.load("r2", "r1", SOCK_ADDR.fields.protocol);
  a.store("r10", u32(0), "r2", key.offset);
  a.loadMap("r1", COUNTS);
  a.addressOf("r2", key);
  a.call("map_lookup_elem");
  a.jumpIf("r0", "==", 0, absent);
  a.load("r0", "r0", u32(0));
  a.exit();
  a.place(absent);
  a.mov("r0", 7);
  a.exit();
  return a.finish();
}

test("a program is assembled, with the line of ours for each instruction", () => {
  const program = lookupProgram();
  assert.deepEqual(disassemble(program.instructions), [
    "0: (7a) *(u64 *)(r10 -8) = 0",
    "1: (61) r2 = *(u32 *)(r1 +36)",
    "2: (63) *(u32 *)(r10 -8) = r2",
    "3: (18) r1 = map[counts]",
    "5: (bf) r2 = r10",
    "6: (07) r2 += -8",
    "7: (85) call bpf_map_lookup_elem#1",
    "8: (15) if r0 == 0x0 goto pc+2",
    "9: (61) r0 = *(u32 *)(r0 +0)",
    "10: (95) exit",
    "11: (b7) r0 = 7",
    "12: (95) exit",
  ]);
  assert.deepEqual(program.maps, [COUNTS]);
  assert.equal(program.notes.length, program.instructions.length);
  assert.match(program.notes[1] ?? "", /^assembler\.test\.ts:\d+$/);
  assert.notEqual(program.notes[1], program.notes[2]);
});

test("it runs over maps in memory", () => {
  const counts = new MemoryMap(COUNTS);
  counts.update(Uint8Array.of(6, 0, 0, 0, 0, 0, 0, 0), Uint8Array.of(42, 0, 0, 0, 0, 0, 0, 0));
  const maps = new Map([["counts", counts]]);
  const context = new Uint8Array(SOCK_ADDR.size);
  assert.equal(interpret(lookupProgram().instructions, context, maps).result, 7n);
  context[SOCK_ADDR.fields.protocol.at] = 6;
  assert.equal(interpret(lookupProgram().instructions, context, maps).result, 42n);
});

/** What the verifier would refuse, and what we say of it. */
const MISTAKES: readonly (readonly [string, (a: Assembler) => void, RegExp])[] = [
  ["a register that nothing wrote", (a) => a.mov("r0", "r3"), /assembler\.test\.ts:\d+: r3 holds nothing/],
  [
    "an argument after a call",
    (a) => {
      a.call("get_prandom_u32");
      a.load("r2", "r1", u32(36));
    },
    /r1 holds nothing/,
  ],
  [
    "a value that may be null",
    (a) => {
      const key = a.slot("key", 8);
      a.clear(key);
      a.loadMap("r1", COUNTS);
      a.addressOf("r2", key);
      a.call("map_lookup_elem");
      a.load("r1", "r0", u32(0));
    },
    /pointer into a value of counts, or null, which has no bytes: compare it with 0 first/,
  ],
  [
    "a key with padding that nothing wrote",
    (a) => {
      const key = a.slot("key", 8);
      a.store("r10", u32(0), 1, key.offset);
      a.loadMap("r1", COUNTS);
      a.addressOf("r2", key);
      a.call("map_lookup_elem");
    },
    /map_lookup_elem: r2 holds the address of the stack at -8; not all 8 bytes of the key are written/,
  ],
  [
    "bytes beyond a value",
    (a) => {
      valueInR0(a);
      a.load("r1", "r0", u64(8));
    },
    /8 bytes at 8 are outside of it/,
  ],
  ["a stack byte before it is written", (a) => a.load("r2", "r10", u32(0), -8), /at -8 is read before/],
  ["bytes across a boundary", (a) => a.store("r10", u32(0), 0, -6), /4 bytes at -6 are not aligned/],
  [
    "a narrow store of the port",
    (a) => {
      a.mov("r2", 1);
      a.store("r1", { at: 24, width: 2 }, "r2");
    },
    /never writes 2 bytes at 24/,
  ],
  ["an IPv6 address at connect4", (a) => a.load("r2", "r1", u32(8)), /a program at connect4 never reads 4 bytes at 8/],
  ["an immediate to the context", (a) => a.store("r1", USER_PORT_WORD, 5), /no immediate to the context/],
  ["arithmetic on the context", (a) => a.alu("add", "r1", 4), /r1 holds the context, and a number is needed/],
  [
    "an address as the result",
    (a) => {
      a.mov("r0", "r1");
      a.exit();
    },
    /r0 holds the context/,
  ],
  [
    "code that nothing leads to",
    (a) => {
      a.mov("r0", 1);
      a.exit();
      a.mov("r0", 1);
    },
    /no way leads here/,
  ],
  [
    "no end",
    (a) => {
      a.mov("r0", 1);
      a.finish();
    },
    /the program has no end/,
  ],
  [
    "a jump back",
    (a) => {
      const back = a.label("back");
      a.place(back);
      a.jump(back);
    },
    /back is behind: programs have no loops/,
  ],
  [
    "a stack byte that only one of two ways wrote",
    (a) => {
      const join = a.label("join");
      a.load("r2", "r1", SOCK_ADDR.fields.protocol);
      a.jumpIf("r2", "==", 6, join);
      a.store("r10", u32(0), 1, -8);
      a.place(join);
      a.load("r3", "r10", u32(0), -8);
    },
    /read before all of its 4 bytes are written/,
  ],
];

function valueInR0(a: Assembler): void {
  const key = a.slot("key", 8);
  const out = a.label("out");
  a.clear(key);
  a.loadMap("r1", COUNTS);
  a.addressOf("r2", key);
  a.call("map_lookup_elem");
  a.jumpIf("r0", "==", 0, out);
}

for (const [what, make, message] of MISTAKES) {
  test(`refused while it is assembled: ${what}`, () => {
    assert.throws(
      () => make(new Assembler("mistaken", socketContext("connect4"))),
      (error) => error instanceof AssemblyError && message.test(error.message),
    );
  });
}

test("copies of a look-up's result are settled by one comparison", () => {
  const a = new Assembler("copies", socketContext("connect4"));
  const key = a.slot("key", 8);
  const out = a.label("out");
  a.clear(key);
  a.loadMap("r1", COUNTS);
  a.addressOf("r2", key);
  a.call("map_lookup_elem");
  a.mov("r6", "r0");
  a.mov("r0", 1);
  a.jumpIf("r6", "==", 0, out);
  a.load("r0", "r6", u32(0));
  a.place(out);
  a.exit();
  assert.equal(a.finish().instructions.length, 10);
});
