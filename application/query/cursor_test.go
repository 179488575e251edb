package query

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// FuzzCursor holds the reader of cursors to its promise: no panic, one of two faults, and nothing
// opens but what was sealed. The marks of a feed are also decoded without their signature.
func FuzzCursor(f *testing.F) {
	sealer, digest := NewCursorSealer([]byte("key")), []byte("digest")
	position := sealer.Seal("acme", digest, Position{After: 1, Until: 2, ChecksumPrefix: [8]byte{3}})
	marks := encodeMarks(7, []mark{{Partition: 7, After: 1, ChecksumPrefix: [8]byte{3}}, {Partition: 9, After: 1 << 40}})
	text, hidden := sealer.SealText("acme", digest, marks), sealer.SealEncrypted("acme", digest, marks)
	for _, seed := range []string{position, text, hidden, marks, "", "AAAA", "\xff", position + "A", text[1:], marks[:len(marks)-1], marks + "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		check := func(sealed string, err error) {
			if err == nil {
				require.Equal(t, sealed, cursor)
				return
			}
			require.Contains(t, []string{"cursor.malformed", "cursor.foreign"}, fault.CodeOf(err))
		}
		_, err := sealer.Open(cursor, "acme", digest)
		check(position, err)
		_, err = sealer.OpenText(cursor, "acme", digest)
		check(text, err)
		_, err = sealer.OpenEncrypted(cursor, "acme", digest)
		check(hidden, err)
		_, err = sealer.Open(cursor, "globex", digest)
		require.Error(t, err)
		_, _, _ = sealer.openMarks(base64.RawURLEncoding.EncodeToString([]byte(cursor)), "acme", digest)
		if last, list, ok := decodeMarks(cursor); ok {
			again, same, ok := decodeMarks(encodeMarks(last, list))
			require.True(t, ok)
			require.Equal(t, last, again)
			require.Equal(t, list, same)
		}
	})
}
