import assert from "node:assert/strict";
import { test } from "node:test";
import { cpioArchive, FOLDER, PROGRAM } from "./cpio.ts";

test("an archive has folders, files and its end, each padded to four bytes", () => {
  const text = cpioArchive([
    { path: "bin", mode: FOLDER },
    { path: "bin/a", mode: PROGRAM, content: Buffer.from("hello") },
  ]).toString("latin1");
  const fields = (...words: string[]) => `070701${words.map((word) => word.padStart(8, "0")).join("")}`;
  assert.equal(
    text,
    [
      // inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name with its NUL, checksum
      `${fields("1", "41ed", "", "", "1", "", "", "", "", "", "", "4", "")}bin\0\0\0`,
      `${fields("2", "81ed", "", "", "1", "", "5", "", "", "", "", "6", "")}bin/a\0hello\0\0\0`,
      `${fields("3", "", "", "", "1", "", "", "", "", "", "", "b", "")}TRAILER!!!\0\0\0\0`,
    ].join(""),
  );
});
