package vault_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
)

var longValue = strings.Repeat("x", 98) // 100 bytes with quotes

func threeFields() string {
	return `{"data":{"id":"E-1","email":"` + longValue + `","iban":"` + longValue + `","partner":{"id":"P-1","name":"` + longValue + `"}},"dimensions":{},"entity_refs":[]}`
}

// BenchmarkSeal seals three values of 100 bytes for two persons whose keys are in
// memory.
func BenchmarkSeal(b *testing.B) {
	r := newVaultFixture(b)
	request := r.sealRequest(threeFields())
	r.seal(b, request)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.vault.Seal(b.Context(), request); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens them again.
func BenchmarkOpen(b *testing.B) {
	r := newVaultFixture(b)
	sealed := r.seal(b, r.sealRequest(threeFields()))
	b.ReportAllocs()
	for b.Loop() {
		documents := []module.SealedDocument{{At: location(), Document: sealed}}
		if err := r.vault.Open(b.Context(), documents, allClasses); err != nil {
			b.Fatal(err)
		}
	}
	require.Positive(b, r.counters.opened)
}
