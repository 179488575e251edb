package shredding

import "crypto/cipher"

// SealFixed seals with a given salt and nonce, for known answers. The product
// never chooses a nonce.
func SealFixed(key Key, at Location, subject Subject, value []byte, salt [24]byte, nonce [12]byte) (Envelope, error) {
	return seal(key, at, subject, value, salt, func(block cipher.Block, dst, plaintext, aad []byte) ([]byte, error) {
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		return gcm.Seal(append(dst, nonce[:]...), nonce[:], plaintext, aad), nil
	})
}

// ParsePath reads a path of a declaration.
func ParsePath(s string) ([]string, error) { return parsePath(s) }

// PathText writes a path as ParsePath reads it.
func PathText(steps []string) string { return pathText(steps) }

// ValueKey gives the key and the commitment of one value.
func ValueKey(key Key, salt, aad []byte) ([]byte, error) { return deriveValueKey(key, salt, aad) }
