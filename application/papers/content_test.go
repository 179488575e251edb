package papers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
)

// knownSealed is the sealed file of the test, in partition 7.
const knownSealed = "6a92bf0b0c10a822097b04b9183f078e164f1fe2fd3656b6e32e88c45c70eddcf857fd38e485a8ef5b3b03c0dafa"

const paperID = "01JQ8E6Z6G3V5T8C9N2M4K7R1P"

func originalOf(secret, file []byte) paper.Original {
	digest := sha256.Sum256(file)
	return paper.Original{SHA256: hex.EncodeToString(digest[:]), Secret: base64.RawURLEncoding.EncodeToString(secret)}
}

// TestContent_KnownAnswer opens bytes that were sealed in the frozen format.
func TestContent_KnownAnswer(t *testing.T) {
	t.Parallel()
	secret, file := bytes.Repeat([]byte{7}, secretSize), []byte("%PDF of the vendor")
	sealed, err := hex.DecodeString(knownSealed)
	require.NoError(t, err)
	opened, err := open(7, paperID, originalOf(secret, file), sealed)
	require.NoError(t, err)
	require.Equal(t, file, opened)
}

func TestContent_Swapped(t *testing.T) {
	t.Parallel()
	secret, file := bytes.Repeat([]byte{7}, secretSize), []byte("%PDF of the vendor")
	sealed, err := seal(7, paperID, secret, file)
	require.NoError(t, err)
	again, err := seal(7, paperID, secret, file)
	require.NoError(t, err)
	require.NotEqual(t, sealed, again)
	require.NotContains(t, string(sealed), "PDF")
	o := originalOf(secret, file)
	opened, err := open(7, paperID, o, sealed)
	require.NoError(t, err)
	require.Equal(t, file, opened)

	changed := bytes.Clone(sealed)
	changed[20]++
	for name, attempt := range map[string]func() ([]byte, error){
		"another legal entity": func() ([]byte, error) { return open(8, paperID, o, sealed) },
		"another paper":        func() ([]byte, error) { return open(7, "01JQ8E6Z6G3V5T8C9N2M4K7R1Q", o, sealed) },
		"another secret": func() ([]byte, error) {
			return open(7, paperID, originalOf(bytes.Repeat([]byte{8}, secretSize), file), sealed)
		},
		"another digest": func() ([]byte, error) { return open(7, paperID, originalOf(secret, []byte("x")), sealed) },
		"a changed byte": func() ([]byte, error) { return open(7, paperID, o, changed) },
		"no bytes":       func() ([]byte, error) { return open(7, paperID, o, nil) },
		"no secret":      func() ([]byte, error) { return open(7, paperID, paper.Original{Secret: "!"}, sealed) },
	} {
		_, err := attempt()
		require.Equal(t, paper.ContentMissing().Code, fault.CodeOf(err), name)
	}
}
