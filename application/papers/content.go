package papers

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/paper"
)

// The format of sealed bytes is frozen: stored papers cannot be sealed again.
//
//	place  = L("backbone/paper/v1") L(u32 partition id) L(paper id)
//	key    = HKDF-SHA256(secret of the event, no salt, place, 32 bytes)
//	sealed = nonce[12] ‖ AES-256-GCM(key, nonce, bytes, place)
//
// with L(x) = u32 length ‖ x, integers big-endian. A key is used once.
const (
	contentDomain = "backbone/paper/v1"
	secretSize    = 32
	purposeID     = "paper-ids" // of the tenant's secret
)

// place is where bytes are sealed: moved to another paper or legal entity they do not open.
func place(p event.PartitionID, id string) []byte {
	out := appendText(nil, contentDomain)
	out = appendText(out, string(binary.BigEndian.AppendUint32(nil, uint32(p))))
	return appendText(out, id)
}

func appendText(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// idOf returns the id of a paper: a keyed digest, so it does not tell what the bytes are. It is the same
// for the same bytes, subject and retention in a legal entity.
func (s *Service) idOf(ctx context.Context, k Keep, digest event.Hash) (string, error) {
	text := appendText(nil, string(binary.BigEndian.AppendUint32(nil, uint32(k.LegalEntity.Partition))))
	text = appendText(text, k.eventType())
	text = appendText(text, string(k.Subject))
	mac, err := s.config.Secrets.Authenticate(ctx, k.LegalEntity.TenantID, purposeID, append(text, digest[:]...))
	return event.ID(mac[:len(event.ID{})]).String(), err
}

// cipherOf makes the cipher of a paper from the secret in its event.
func cipherOf(p event.PartitionID, id string, secret []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, string(place(p, id)), 32)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns sealed bytes.
func seal(p event.PartitionID, id string, secret, file []byte) ([]byte, error) {
	aead, err := cipherOf(p, id, secret)
	if err != nil {
		return nil, err
	}
	return aead.Seal(make([]byte, 0, len(file)+aead.Overhead()), nil, file, place(p, id)), nil
}

// open returns the bytes of a paper and compares them with their digest.
func open(p event.PartitionID, id string, o paper.Original, sealed []byte) ([]byte, error) {
	secret, err := base64.RawURLEncoding.DecodeString(o.Secret)
	if err != nil {
		return nil, paper.ContentMissing()
	}
	defer clear(secret)
	aead, err := cipherOf(p, id, secret)
	if err != nil {
		return nil, err
	}
	file, err := aead.Open(nil, nil, sealed, place(p, id))
	if digest := sha256.Sum256(file); err != nil || hex.EncodeToString(digest[:]) != o.SHA256 {
		return nil, paper.ContentMissing()
	}
	return file, nil
}
