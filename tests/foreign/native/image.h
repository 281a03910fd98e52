/* The memory that Python lays out for a machine (tests/foreign/image.py): a header, libraries, data, calls.
 *
 * All fields are 8 bytes. What a machine gives back is the word DONE and then the ranges, one after the other. */
#define IMAGE 0x2000000ul /* where the memory begins, in every machine */
#define ARGUMENTS 32      /* of a call: words; a function takes as many of them as it has parameters */
#define DONE 0x656e6f64ul /* "done" */

typedef unsigned long word;

struct call {
  word function; /* after the call: what it returned */
  word arguments[ARGUMENTS];
};

struct range {
  word address, bytes;
};

struct header {
  word bytes;  /* given: header, libraries, data, calls and ranges */
  word memory; /* with the zeros behind, which malloc hands out */
  struct call *calls;
  word call_count;
  struct range *ranges; /* what is given back */
  word range_count;
};

static inline void call_all(const struct header *header) {
  typedef word function(word, word, word, word, word, word, word, word, word, word, word, word, word, word, word,
                        word, word, word, word, word, word, word, word, word, word, word, word, word, word, word,
                        word, word);
  for (word i = 0; i < header->call_count; i++) {
    const word *a = header->calls[i].arguments;
    header->calls[i].function = ((function *)header->calls[i].function)(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16],
        a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27], a[28], a[29], a[30], a[31]);
  }
}
