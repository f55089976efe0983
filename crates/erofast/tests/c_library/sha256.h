/* SHA-256 (FIPS 180-4), for the sums of the manifests. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct sha256 {
    uint32_t state[8];
    uint8_t block[64];
    uint64_t bytes;
};

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static void sha256_block(struct sha256 *sum)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++) {
        const uint8_t *b = sum->block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, sum->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t one = s[7] + e + choice + sha256_k[i] + w[i];
        uint32_t a = rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22);
        uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        sum->state[i] += s[i];
}

static void sha256_begin(struct sha256 *sum)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(sum, 0, sizeof *sum);
    memcpy(sum->state, start, sizeof start);
}

static void sha256_add(struct sha256 *sum, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t filled = sum->bytes % 64, count = 64 - filled < size ? 64 - filled : size;
        memcpy(sum->block + filled, data, count);
        sum->bytes += count;
        data += count;
        size -= count;
        if (sum->bytes % 64 == 0)
            sha256_block(sum);
    }
}

static void sha256_print(struct sha256 *sum)
{
    uint64_t bits = sum->bytes * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(sum, (const uint8_t *)"\x80", 1);
    while (sum->bytes % 64 != 56)
        sha256_add(sum, (const uint8_t *)"", 1);
    sha256_add(sum, length, 8);
    for (int i = 0; i < 8; i++)
        printf("%08x", sum->state[i]);
}
