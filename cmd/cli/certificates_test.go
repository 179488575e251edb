package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestVerifyCertificate(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(testkit.RepoRoot(t), "application", "erasure", "testdata")
	document, keyFile := filepath.Join(folder, "certificate-v1.json"), filepath.Join(folder, "verifier.key")
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	changed := filepath.Join(t.TempDir(), "changed.json")
	require.NoError(t, os.WriteFile(changed, bytes.Replace(content, []byte(`"partial"`), []byte(`"complete"`), 1), 0o600))
	key, err := os.ReadFile(keyFile)
	require.NoError(t, err)
	const otherKey = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

	for name, c := range map[string]struct {
		options certificateOptions
		genuine bool
		code    string
		says    string
	}{
		"genuine":          {certificateOptions{File: document, Keys: []string{keyFile}}, true, "", "Genuine: signed"},
		"key as text":      {certificateOptions{File: document, Keys: []string{string(key)}}, true, "", "employee:E-1"},
		"one of two keys":  {certificateOptions{File: document, Keys: []string{otherKey, keyFile}}, true, "", "kept until"},
		"from the input":   {certificateOptions{File: "-", In: bytes.NewReader(content), Keys: []string{keyFile}, output: output{json: true}}, true, "", `"genuine": true`},
		"changed":          {certificateOptions{File: changed, Keys: []string{keyFile}}, false, "erasure.certificate_altered", "Not genuine"},
		"changed, as JSON": {certificateOptions{File: changed, Keys: []string{keyFile}, output: output{json: true}}, false, "erasure.certificate_altered", `"genuine": false`},
		"another key":      {certificateOptions{File: document, Keys: []string{otherKey}}, false, "note.not_verified", "Not genuine"},
		"no certificate":   {certificateOptions{File: keyFile, Keys: []string{keyFile}}, false, "erasure.certificate_malformed", "Not genuine"},
		"no file":          {certificateOptions{File: document + "x", Keys: []string{keyFile}}, true, "erasure.certificate_unreadable", ""},
		"no key":           {certificateOptions{File: document}, true, "note.key_missing", ""},
		"no key file":      {certificateOptions{File: document, Keys: []string{keyFile + "x"}}, true, "note.key_unreadable", ""},
		"no such key":      {certificateOptions{File: document, Keys: []string{"a+b+c"}}, true, "note.key_invalid", ""},
	} {
		var out strings.Builder
		c.options.out = &out
		genuine, err := verifyCertificate(c.options)
		require.Equal(t, c.genuine, genuine, name)
		require.Equal(t, c.code, fault.CodeOf(err), name)
		require.Contains(t, out.String(), c.says, name)
		if c.says == "" {
			require.Empty(t, out.String(), name)
		}
	}
}
