/**
 * The match `-m bpf --bytecode` of clients whose hash is below a bound: a classic BPF program, which reads the packet from its
 * network header on. All arithmetic is on unsigned 32-bit numbers.
 */
import { type IpAddress, type IpFamily, ipBytes } from "../../net/ip.ts";
import { MIX_FACTORS, MIX_SHIFTS, mixed } from "../../net/mix.ts";

export interface HashProgram {
  readonly family: IpFamily;
  /** Whether the source port counts, too. */
  readonly isFlow: boolean;
  readonly seed: number;
  readonly below: number;
}

/** By the place of a word of the address. They are odd, so that each bit of a word counts. */
const WORD_FACTORS = [0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f] as const;
const PORT_FACTOR = 0x165667b1;

/** Instructions: `code jump-if-true jump-if-false operand`. */
const LOAD_WORD = "32 0 0";
const LOAD_HALF = "40 0 0";
/** From the end of the IPv4 header, whose length is in X. */
const LOAD_HALF_AFTER = "72 0 0 0";
const HEADER_LENGTH_TO_X = "177 0 0 0";
const MULTIPLY = "36 0 0";
const ADD = "4 0 0";
const ADD_X = "12 0 0 0";
const STORE = "2 0 0 0";
const LOAD_STORED_TO_X = "97 0 0 0";
const COPY_TO_X = "7 0 0 0";
const SHIFT_RIGHT = "116 0 0";
const XOR_X = "172 0 0 0";
const SKIP_IF_AT_LEAST = "53 0 1";
const RETURN = "6 0 0";

/** Where the words of the source are in the header. */
const SOURCE_AT = { IPv4: [12], IPv6: [8, 12, 16, 20] } as const;
const PORT_AFTER_IPV6 = 40;

/** The bytecode, as the tools take and print it. */
export function hashProgramText({ family, isFlow, seed, below }: HashProgram): string {
  const code: string[] = [];
  if (isFlow) {
    const load = family === "IPv4" ? [HEADER_LENGTH_TO_X, LOAD_HALF_AFTER] : [`${LOAD_HALF} ${PORT_AFTER_IPV6}`];
    code.push(...load, `${MULTIPLY} ${PORT_FACTOR}`);
  }
  for (const [index, at] of SOURCE_AT[family].entries()) {
    const isFirst = code.length === 0;
    if (!isFirst) code.push(STORE);
    code.push(`${LOAD_WORD} ${at}`, `${MULTIPLY} ${WORD_FACTORS[index]}`);
    if (!isFirst) code.push(LOAD_STORED_TO_X, ADD_X);
  }
  code.push(`${ADD} ${seed}`);
  for (const [index, shift] of MIX_SHIFTS.entries()) {
    code.push(COPY_TO_X, `${SHIFT_RIGHT} ${shift}`, XOR_X);
    const factor = MIX_FACTORS[index];
    if (factor !== undefined) code.push(`${MULTIPLY} ${factor}`);
  }
  code.push(`${SKIP_IF_AT_LEAST} ${below}`, `${RETURN} 0`, `${RETURN} 65535`);
  return [code.length, ...code].join();
}

/** Instructions behind the seed's. */
const BEHIND_SEED = 3 * MIX_SHIFTS.length + MIX_FACTORS.length + 3;

/** The program with this bytecode; undefined if it is none of ours. */
export function readHashProgram(text: string, family: IpFamily): HashProgram | undefined {
  const operands = text.split(",").map((instruction) => Number(instruction.split(" ").at(-1)));
  const [seed = 0, below = 0] = [operands.at(-1 - BEHIND_SEED), operands.at(-3)];
  const programs = [false, true].map((isFlow) => ({ family, isFlow, seed, below }));
  return programs.find((program) => hashProgramText(program) === text);
}

/** What the program computes of a client, from 0 to below 2³²; undefined where it needs a port that is not known. */
export function clientHash(
  { isFlow, seed }: Pick<HashProgram, "isFlow" | "seed">,
  source: IpAddress,
  port: number | undefined,
): number | undefined {
  if (isFlow && port === undefined) return undefined;
  let sum = isFlow ? seed + Math.imul(port ?? 0, PORT_FACTOR) : seed;
  const bytes = ipBytes(source);
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.length; at += 4)
    sum = (sum + Math.imul(words.getUint32(at), WORD_FACTORS[at / 4] ?? 1)) | 0;
  return mixed(sum);
}
