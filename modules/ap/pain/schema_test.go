package pain_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/pain"
)

// schemaFolder is the environment variable with the folder of ISO 20022 schemas, which are
// published at www.iso20022.org and are not part of the repository.
const schemaFolder = "BACKBONE_ISO20022_XSD"

// TestWrite_Schema validates messages against pain.001.001.09.xsd with xmllint (Debian:
// libxml2-utils).
func TestWrite_Schema(t *testing.T) {
	t.Parallel()
	lint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("not validated against pain.001.001.09.xsd: there is no xmllint; install libxml2-utils")
	}
	xsd := filepath.Join(os.Getenv(schemaFolder), "pain.001.001.09.xsd")
	if os.Getenv(schemaFolder) == "" {
		t.Skip("not validated against pain.001.001.09.xsd: set " + schemaFolder + " to the folder that has it")
	}
	validate := func(m *pain.Message) (string, error) {
		t.Helper()
		file, err := pain.Write(m)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "message.xml")
		require.NoError(t, os.WriteFile(path, file, 0o600))
		out, err := exec.CommandContext(t.Context(), lint, "--noout", "--nonet", "--schema", xsd, path).CombinedOutput()
		return string(out), err
	}
	for name, change := range map[string]func(*pain.Message){
		"as it is":             func(*pain.Message) {},
		"no BIC of the debtor": func(m *pain.Message) { m.Debtor.BIC = "" },
		"holder of the debtor": func(m *pain.Message) { m.Debtor.Holder = strings.Repeat("Ä", 200) },
		"long names": func(m *pain.Message) {
			m.Initiator = strings.Repeat("x", 200)
			m.Transfers[0].Creditor.Holder = strings.Repeat("Ü", 200)
		},
		"control characters": func(m *pain.Message) {
			m.Transfers[0].Creditor.Holder = "a\x01b\tc\nd\ufffe"
			m.Transfers[0].Remittance = "\x00"
		},
		"blanks alone":         func(m *pain.Message) { m.Transfers[0].Remittance = "  "; m.Transfers[0].Creditor.Holder = " \t " },
		"account with blanks":  func(m *pain.Message) { m.Transfers[1].Creditor.Number = "12 34-5" },
		"long clearing number": func(m *pain.Message) { m.Transfers[1].Creditor.Bank = strings.Repeat("9", 50) },
		"no bank":              func(m *pain.Message) { m.Transfers[1].Creditor.Bank = "" },
		"largest amount":       func(m *pain.Message) { m.Transfers[0].Amount = money.MustNumber("999999999999.99") },
	} {
		m := message()
		change(m)
		out, err := validate(m)
		assert.NoError(t, err, "%s: %s", name, out)
	}
	m := message()
	m.Transfers[0].Currency = "EURO"
	_, err = validate(m)
	require.Error(t, err, "the schema refuses what is wrong")
}
