package xmltree_test

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/fault"
)

var codes = xmltree.Codes{DoctypeForbidden: "x.doctype", TooLarge: "x.large", Malformed: "x.malformed", TextTooLong: "x.long"}

func parse(text string) (*xmltree.Element, error) {
	return xmltree.Parse(strings.NewReader(text), codes, func(root xml.Name, line int) (xmltree.Dialect, error) {
		if root.Space != "urn:a" {
			return xmltree.Dialect{}, fault.New(fault.Invalid, "x.kind", "another kind").With("line", line)
		}
		return xmltree.Dialect{Prefixes: map[string]string{"urn:a": "", "urn:b": "b:"}, Attributes: []string{"Ccy"}, Embedded: []string{"File"}}, nil
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	root, err := parse("\ufeff" + `<A xmlns="urn:a" xmlns:q="urn:b" xmlns:z="urn:z"><B Ccy=" EUR " other="x">1
  2</B><B/><q:C>n/a</q:C><z:D>left out</z:D><File>AAEC</File></A>`)
	require.NoError(t, err)
	require.Equal(t, "1 2", root.Value("B"))
	require.Equal(t, "EUR", root.Find("B").Attribute("Ccy"))
	require.Empty(t, root.Find("B").Attribute("other"))
	require.Len(t, root.All("B"), 2)
	require.Equal(t, "/A/B[2]", root.All("B")[1].Path())
	require.Empty(t, root.Value("b:C"), "a placeholder")
	require.Equal(t, "/A/b:C", root.Find("b:C").Path())
	require.Nil(t, root.Find("D"), "another namespace")
	require.Equal(t, int64(3), root.Find("File").Content.Size)
	root.BuildIndex()
	require.Len(t, root.ByTag("B"), 2)
	var none *xmltree.Element
	require.Empty(t, none.Value("B")+none.Attribute("Ccy")+none.Path())
}

func TestParse_Refusals(t *testing.T) {
	t.Parallel()
	for code, text := range map[string]string{
		"x.kind":      `<A/>`,
		"x.doctype":   `<!DOCTYPE A><A xmlns="urn:a"/>`,
		"x.malformed": `<A xmlns="urn:a">`,
		"x.long":      `<A xmlns="urn:a"><B>` + strings.Repeat("a", xmltree.MaxText+1) + `</B></A>`,
		"x.large":     `<A xmlns="urn:a">` + strings.Repeat("<B/>", xmltree.MaxElements+1) + `</A>`,
	} {
		_, err := parse(text)
		require.Equal(t, code, fault.CodeOf(err), "%v", err)
	}
	_, digest, err := xmltree.ReadFile(strings.NewReader("<A/>"), codes, func(in io.Reader) (*xmltree.Element, error) {
		return xmltree.Parse(in, codes, func(xml.Name, int) (xmltree.Dialect, error) {
			return xmltree.Dialect{}, fault.New(fault.Invalid, "x.kind", "another kind")
		})
	})
	require.Equal(t, "x.kind", fault.CodeOf(err))
	require.Len(t, digest, 64, "a refused file has a hash too")
}
