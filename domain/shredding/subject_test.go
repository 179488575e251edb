package shredding_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	for text, parts := range map[string][2]string{
		"employee:E-1":                  {"employee", "E-1"},
		"a:b":                           {"a", "b"},
		"person:x:y":                    {"person", "x:y"},
		"a.b-c_D:9":                     {"a.b-c_D", "9"},
		"p:" + strings.Repeat("x", 126): {"p", strings.Repeat("x", 126)},
	} {
		s, err := shredding.ParseSubject(text)
		require.NoError(t, err)
		require.Equal(t, text, s.String())
		require.Equal(t, parts, [2]string{s.Type(), s.ID()})
		again, err := shredding.NewSubject(s.Type(), s.ID())
		require.NoError(t, err)
		require.Equal(t, s, again)
	}
	for _, text := range []string{"", "E-1", ":", "a:", ":b", "a:b c", "a:ä", "a:b\n", "a:b/c", "a:ada@example.org", "p:" + strings.Repeat("x", 127), "a:\x00"} {
		_, err := shredding.ParseSubject(text)
		require.Equal(t, "pii.subject_invalid", fault.CodeOf(err), "%q", text)
		if len(text) > 4 {
			require.NotContains(t, err.Error(), text)
		}
	}
	_, err := shredding.NewSubject("a:b", "c")
	require.Equal(t, "pii.subject_invalid", fault.CodeOf(err))
}

func TestClasses(t *testing.T) {
	t.Parallel()
	require.Len(t, shredding.Classes(), 6)
	for _, c := range shredding.Classes() {
		require.True(t, c.Valid())
	}
	require.False(t, shredding.Class("").Valid())
	require.False(t, shredding.Class("Contact").Valid())

	for _, c := range shredding.KeyClasses() {
		parsed, err := shredding.ParseKeyClass(c.String())
		require.NoError(t, err)
		require.Equal(t, c, parsed)
	}
	// The numbers are part of the envelope format.
	require.Equal(t, []shredding.KeyClass{0, 1, 2}, shredding.KeyClasses())
	require.Equal(t, "standard regulatory pii_subject invalid", strings.Join([]string{
		shredding.KeyStandard.String(), shredding.KeyRegulatory.String(), shredding.KeyPIISubject.String(), shredding.KeyClass(3).String(),
	}, " "))
	c, err := shredding.ParseKeyClass("")
	require.NoError(t, err)
	require.Equal(t, shredding.KeyStandard, c)
	_, err = shredding.ParseKeyClass("for_ever")
	require.Equal(t, "pii.key_class_invalid", fault.CodeOf(err))
}
