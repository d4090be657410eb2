/*
 * "send-shutdown PID": does what the runtime of HostProcess containers does for SIGTERM: starts a thread in the process at CtrlRoutine
 * with CTRL_SHUTDOWN_EVENT. Facts: docs/reference/windows-practice.md §12.
 */
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
  if (count != 2) return 2;
  HANDLE process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, (DWORD)atoi(words[1]));
  FARPROC routine = GetProcAddress(GetModuleHandleA("kernelbase.dll"), "CtrlRoutine");
  void *event = (void *)(size_t)CTRL_SHUTDOWN_EVENT;
  if (CreateRemoteThread(process, NULL, 0, (LPTHREAD_START_ROUTINE)(void *)routine, event, 0, NULL) != NULL) return 0;
  printf("process %s: error %lu\n", words[1], GetLastError());
  return 1;
}
