# The first sector of a disk: loads the next ones behind itself, enters long mode with AVX-512 enabled, calls machine().
# Memory is mapped one to one up to 1 GiB, in pages of 2 MiB; the page tables lie at 0x100000.
.set SECTORS, 16
.set TABLES, 0x100000
.set CODE64, 8
.set CODE32, 16
.set DATA, 24

.code16
.globl _start
_start:
  cli
  xor %ax, %ax
  mov %ax, %ds
  mov %ax, %es
  mov %ax, %ss
  mov $0x7c00, %sp
  mov $packet, %si
  mov $0x42, %ah             # the BIOS reads sectors by their numbers
  mov $0x80, %dl             # from the first disk
  int $0x13
  jc .
  in $0x92, %al              # addresses above 1 MiB
  or $2, %al
  out %al, $0x92
  lgdt table
  mov %cr0, %eax
  or $1, %eax
  mov %eax, %cr0
  ljmp $CODE32, $protected

.code32
protected:
  mov $DATA, %ax
  mov %ax, %ds
  mov %ax, %es
  mov %ax, %ss
  mov $TABLES, %edi
  xor %eax, %eax
  mov $(3 * 1024), %ecx
  rep stosl
  movl $(TABLES + 0x1003), TABLES           # level 4: one entry, present and writable
  movl $(TABLES + 0x2003), TABLES + 0x1000  # level 3: one entry
  mov $(TABLES + 0x2000), %edi              # level 2: 512 pages of 2 MiB
  mov $0x83, %eax
1:
  mov %eax, (%edi)
  add $0x200000, %eax
  add $8, %edi
  cmp $(TABLES + 0x3000), %edi
  jne 1b
  mov $TABLES, %eax
  mov %eax, %cr3
  mov %cr4, %eax
  or $0x40620, %eax          # long page entries; SSE and its exceptions; XSAVE
  mov %eax, %cr4
  mov $0xc0000080, %ecx      # long mode
  rdmsr
  or $0x100, %eax
  wrmsr
  mov %cr0, %eax
  and $~4, %eax              # no emulated floating point
  or $0x80000002, %eax       # paging
  mov %eax, %cr0
  ljmp $CODE64, $long_mode

.code64
long_mode:
  mov $0x90000, %rsp
  xor %ecx, %ecx
  xor %edx, %edx
  mov $0xe7, %eax            # x87, SSE, AVX, and the three parts of AVX-512
  xsetbv
  call machine
  hlt

packet:
  .byte 16, 0
  .word SECTORS, 0x7e00, 0
  .quad 1
.p2align 3
segments:
  .quad 0, 0x00af9a000000ffff, 0x00cf9a000000ffff, 0x00cf92000000ffff
table:
  .word . - segments - 1
  .long segments

.org 510
.word 0xaa55
