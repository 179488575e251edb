package shredding_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/shredding"
)

// element is an element of GF(2^128) as GCM writes it: the first bit is the
// coefficient of x^0.
type element struct{ high, low uint64 }

func elementOf(block []byte) element {
	return element{binary.BigEndian.Uint64(block), binary.BigEndian.Uint64(block[8:])}
}

func (a element) plus(b element) element { return element{a.high ^ b.high, a.low ^ b.low} }

func (a element) times(b element) (product element) {
	for i := range 128 {
		word := a.high
		if i >= 64 {
			word = a.low
		}
		if word<<(i%64)>>63 == 1 {
			product = product.plus(b)
		}
		carry := b.low & 1
		b = element{b.high >> 1, b.low>>1 | b.high<<63}
		if carry == 1 {
			b.high ^= 0xe1 << 56
		}
	}
	return product
}

func (a element) power(n int) element {
	product := element{high: 1 << 63}
	for range n {
		product = product.times(a)
	}
	return product
}

// inverse is a^(2^128-2).
func (a element) inverse() element {
	product, square := element{high: 1 << 63}, a
	for range 127 {
		square = square.times(square)
		product = product.times(square)
	}
	return product
}

// doubleKeyed makes a ciphertext with a tag that is right under two keys. GCM
// does not commit to a key, so that one free block is enough.
func doubleKeyed(t *testing.T, keys [2][]byte, nonce, aad []byte) []byte {
	t.Helper()
	pad := func(b []byte) []byte { return append(b[:len(b):len(b)], make([]byte, (16-len(b)%16)%16)...) }
	ciphertext := run(0x11, 32) // the second block is the free one
	lengths := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(len(aad))*8), uint64(len(ciphertext))*8)
	input := append(append(pad(aad), ciphertext...), lengths...)
	free := len(input)/16 - 2
	copy(input[free*16:], make([]byte, 16))

	var hashKeys, masks, hashes [2]element
	for i, key := range keys {
		block, err := aes.NewCipher(key)
		require.NoError(t, err)
		var out [16]byte
		block.Encrypt(out[:], out[:])
		hashKeys[i] = elementOf(out[:])
		block.Encrypt(out[:], append(append([]byte(nil), nonce...), 0, 0, 0, 1))
		masks[i] = elementOf(out[:])
		for j := 0; j < len(input); j += 16 {
			hashes[i] = hashes[i].plus(elementOf(input[j:])).times(hashKeys[i])
		}
	}
	// free·(H1² + H2²) makes up for the difference of the tags without it.
	difference := hashes[0].plus(masks[0]).plus(hashes[1]).plus(masks[1])
	block := difference.times(hashKeys[0].power(2).plus(hashKeys[1].power(2)).inverse())
	tag := hashes[0].plus(masks[0]).plus(block.times(hashKeys[0].power(2)))
	binary.BigEndian.PutUint64(ciphertext[16:], block.high)
	binary.BigEndian.PutUint64(ciphertext[24:], block.low)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(ciphertext, tag.high), tag.low)
}

// TestKeyCommitment makes a ciphertext that GCM opens under two keys: Open accepts at most one
// of them.
func TestKeyCommitment(t *testing.T) {
	t.Parallel()
	at, salt, nonce := knownLocation(), run(0x40, 24), run(0x80, 12)
	aad := at.AppendAAD(nil, employee, shredding.KeyStandard, 1)
	first, second := testKey(t, 0, 1, run(0, 32)), testKey(t, 0, 1, run(1, 32))
	okm := [2][]byte{}
	for i, k := range []shredding.Key{first, second} {
		var err error
		okm[i], err = shredding.ValueKey(k, salt, aad)
		require.NoError(t, err)
	}
	ciphertext := doubleKeyed(t, [2][]byte{okm[0][:32], okm[1][:32]}, nonce, aad)
	for i := range okm {
		block, err := aes.NewCipher(okm[i][:32])
		require.NoError(t, err)
		gcm, err := cipher.NewGCM(block)
		require.NoError(t, err)
		_, err = gcm.Open(nil, nonce, ciphertext, aad)
		require.NoError(t, err, "the attack on GCM alone works")
	}
	build := func(commitment []byte) shredding.Envelope {
		e := append(shredding.Envelope{1, 0, 0, 0, 0, 1}, salt...)
		return append(append(append(e, commitment...), nonce...), ciphertext...)
	}
	_, err := shredding.Open(first, at, employee, build(okm[0][32:]))
	require.NoError(t, err)
	_, err = shredding.Open(second, at, employee, build(okm[0][32:]))
	refused(t, err)
	_, err = shredding.Open(second, at, employee, build(okm[1][32:]))
	require.NoError(t, err)
	_, err = shredding.Open(first, at, employee, build(okm[1][32:]))
	refused(t, err)

	mixed := make([]byte, 32)
	subtle.XORBytes(mixed, okm[0][32:], okm[1][32:])
	for _, k := range []shredding.Key{first, second} {
		_, err = shredding.Open(k, at, employee, build(mixed))
		refused(t, err)
	}
}
