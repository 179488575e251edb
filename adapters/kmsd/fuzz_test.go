package kmsd_test

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
)

// FuzzDecode sends any body to any operation. The answer is an error of the protocol or a value
// that encodes, and never a plain key for a ciphertext that this server has not made.
func FuzzDecode(f *testing.F) {
	folder := filepath.Join(f.TempDir(), "keys")
	require.NoError(f, kmsd.IssueTo(folder, folder+"-credentials"))
	server, err := kmsd.Open(kmsd.Config{Directory: folder, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f, err)
	f.Cleanup(func() { _ = server.Close() })
	operations := kmsd.Operations()
	slices.Sort(operations)
	// CreateKey would fill the disk.
	operations = slices.DeleteFunc(operations, func(name string) bool { return name == "CreateKey" })
	_, err = server.Dispatch(kmsd.BreakGlass, "CreateKey", []byte(`{"Description":"seed"}`))
	require.NoError(f, err)
	for i := range operations {
		for _, seed := range []string{
			`{}`, `null`, `[]`, `{"KeyId":"alias/x"}`, `{"KeyId":"arn:aws:kms:local:000000000000:key/"}`, `{"AliasName":"alias/x","TargetKeyId":"x"}`,
			`{"KeyId":"k","CiphertextBlob":"AQAAAAAAAAAAAAAAAAAAAAAAAAAB","EncryptionContext":{"a":"b"}}`, `{"CiphertextBlob":"AAAA"}{}`,
			`{"Message":"AA==","SigningAlgorithm":"ED25519_SHA_512","MessageType":"RAW"}`, `{"PendingWindowInDays":1e400}`, "{\"KeyId\":\"\xff\"}",
		} {
			f.Add(i, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, n int, body []byte) {
		operation := operations[uint(n)%uint(len(operations))]
		answer, err := server.Dispatch(kmsd.BreakGlass, operation, body)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		_, err = json.Marshal(answer)
		require.NoError(t, err)
		require.NotContains(t, []string{"Decrypt", "ReEncrypt", "Sign"}, operation)
	})
}
