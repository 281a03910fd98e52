/* What boot.S calls in a PC without system: the image is on the disk at IMAGE_SECTOR, the ranges are written behind
 * it, and the machine is switched off. */
#include "image.h"

enum { SECTOR = 512, IMAGE_SECTOR = 64 };
enum { DATA = 0x1f0, COUNT = 0x1f2, NUMBER = 0x1f3, DRIVE = 0x1f6, COMMAND = 0x1f7, CONTROL = 0x3f6 };
enum { READ_SECTOR = 0x20, WRITE_SECTOR = 0x30, NO_INTERRUPTS = 2, LINEAR = 0xe0, BUSY = 0x80, READY = 8 };
enum { POWER = 0x8900 };

static void out(word port, word value) {
  __asm__ volatile("outb %b0, %w1" : : "a"(value), "d"(port));
}

static word in(word port) {
  word value = 0;
  __asm__ volatile("inb %w1, %b0" : "+a"(value) : "d"(port));
  return value;
}

static void command(word sector, word what) {
  while (in(COMMAND) & BUSY) {}
  out(CONTROL, NO_INTERRUPTS);
  out(DRIVE, LINEAR | (sector >> 24 & 15));
  out(COUNT, 1);
  for (word i = 0; i < 3; i++) out(NUMBER + i, sector >> 8 * i);
  out(COMMAND, what);
  while ((in(COMMAND) & (BUSY | READY)) != READY) {}
}

static void read_sectors(word sector, word to, word bytes) {
  for (word end = to + bytes; to < end; sector++) {
    word words = SECTOR / 2;
    command(sector, READ_SECTOR);
    __asm__ volatile("rep insw" : "+D"(to), "+c"(words) : "d"((word)DATA) : "memory");
  }
}

static void write_sectors(word sector, word from, word bytes) {
  for (word end = from + bytes; from < end; sector++) {
    word words = SECTOR / 2;
    command(sector, WRITE_SECTOR);
    __asm__ volatile("rep outsw" : "+S"(from), "+c"(words) : "d"((word)DATA) : "memory");
  }
}

void machine(void) {
  struct header *header = (struct header *)IMAGE;
  read_sectors(IMAGE_SECTOR, IMAGE, SECTOR);
  read_sectors(IMAGE_SECTOR + 1, IMAGE + SECTOR, header->bytes - SECTOR);
  call_all(header);
  word begin = IMAGE + (header->memory + SECTOR - 1) / SECTOR * SECTOR, end = begin;
  *(word *)end = DONE;
  end += sizeof(word);
  for (word i = 0; i < header->range_count; i++) {
    word from = header->ranges[i].address, bytes = header->ranges[i].bytes;
    __asm__ volatile("rep movsb" : "+D"(end), "+S"(from), "+c"(bytes) : : "memory");
  }
  write_sectors(IMAGE_SECTOR + (header->bytes + SECTOR - 1) / SECTOR, begin, end - begin);
  for (const char *text = "Shutdown"; *text; text++) out(POWER, (word)*text);
}
