package authz

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/ext"
	"google.golang.org/protobuf/types/known/structpb"
)

// costLimit bounds the work of one evaluation, in units of CEL's own cost model.
const costLimit = 10_000

// callerView and toolView are what an expression sees. Their fields are checked when the
// configuration is loaded, so that a misspelt one is an error there and not a rule that never fires.
type callerView struct {
	Subject string           `cel:"subject"`
	Issuer  string           `cel:"issuer"`
	Teams   []string         `cel:"teams"`
	Scopes  []string         `cel:"scopes"`
	Claims  *structpb.Struct `cel:"claims"`
}

func newCallerView(c Caller) *callerView {
	v := &callerView{Subject: c.Subject, Issuer: c.Issuer, Teams: c.Teams, Scopes: c.Scopes, Claims: &structpb.Struct{}}
	// Claims come from JSON, which is all that a Struct can hold; a caller whose claims it could not
	// hold has none.
	if claims, err := structpb.NewStruct(c.Claims); err == nil {
		v.Claims = claims
	}
	return v
}

type annotationsView struct {
	ReadOnlyHint    bool `cel:"readOnlyHint"`
	DestructiveHint bool `cel:"destructiveHint"`
	IdempotentHint  bool `cel:"idempotentHint"`
	OpenWorldHint   bool `cel:"openWorldHint"`
}

// destructive is the hint where it means something.
func (a Annotations) destructive() bool { return a.Destructive && !a.ReadOnly }

func newToolView(i *Item) *toolView {
	return &toolView{Kind: i.Kind, Name: i.Name, Server: i.Server, Original: i.Original, Annotations: annotationsView{
		ReadOnlyHint: i.Annotations.ReadOnly, DestructiveHint: i.Annotations.destructive(),
		IdempotentHint: i.Annotations.Idempotent, OpenWorldHint: i.Annotations.OpenWorld,
	}}
}

type toolView struct {
	Kind        string          `cel:"kind"`
	Name        string          `cel:"name"`
	Server      string          `cel:"server"`
	Original    string          `cel:"original"`
	Annotations annotationsView `cel:"annotations"`
}

// condition is a compiled expression.
type condition struct {
	text    string
	program cel.Program
	uses    uses
}

// uses are the attributes of a caller that expressions depend on.
type uses struct {
	conditions bool // there is an expression at all
	subject    bool // or the issuer
	teams      bool
	scopes     bool
	allClaims  bool
	claims     map[string]bool
}

func (u *uses) add(o uses) {
	u.conditions = true
	u.subject = u.subject || o.subject
	u.teams = u.teams || o.teams
	u.scopes = u.scopes || o.scopes
	u.allClaims = u.allClaims || o.allClaims
	if u.claims == nil {
		u.claims = make(map[string]bool)
	}
	maps.Copy(u.claims, o.claims)
}

func (u uses) names() []string { return slices.Sorted(maps.Keys(u.claims)) }

// conditionEnv makes the environment in which expressions are compiled.
func conditionEnv() (*cel.Env, error) {
	caller, tool := reflect.TypeFor[callerView](), reflect.TypeFor[toolView]()
	return cel.NewEnv(
		ext.NativeTypes(caller, tool, reflect.TypeFor[annotationsView](), ext.ParseStructTag("cel")),
		ext.Strings(),
		cel.Variable("caller", cel.ObjectType("authz.callerView")),
		cel.Variable("tool", cel.ObjectType("authz.toolView")),
	)
}

func compile(env *cel.Env, text string) (*condition, error) {
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, oneLine(issues)
	}
	if t := checked.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, fmt.Errorf("the expression is a %s, not a bool", t)
	}
	program, err := env.Program(checked, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	return &condition{text: text, program: program, uses: usesOf(checked)}, nil
}

// oneLine is what the compiler found, without its drawing of the place.
func oneLine(issues *cel.Issues) error {
	var parts []string
	for _, e := range issues.Errors() {
		text := strings.Join(strings.Fields(e.Message), " ")
		parts = append(parts, fmt.Sprintf("%s, at line %d, column %d", text, e.Location.Line(), e.Location.Column()+1))
	}
	return errors.New(strings.Join(parts, "; "))
}

// eval returns the value of the expression; an error of it has no value.
func (c *condition) eval(caller *callerView, tool *toolView) (bool, error) {
	out, _, err := c.program.Eval(map[string]any{"caller": caller, "tool": tool})
	if err != nil {
		return false, err
	}
	b, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the expression gave no bool")
	}
	return b, nil
}

// usesOf finds the attributes of the caller that an expression reads. Whatever it cannot tell counts
// as reading everything.
func usesOf(checked *cel.Ast) uses {
	u := uses{claims: make(map[string]bool)}
	explained := make(map[int64]bool) // nodes that a node above has accounted for
	visit := ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			sel := e.AsSelect()
			switch op := sel.Operand(); {
			case isIdent(op, "caller"):
				explained[op.ID()] = true
				u.field(sel.FieldName(), explained[e.ID()])
			case isClaims(op):
				explained[op.ID()] = true
				u.claims[sel.FieldName()] = true
			}
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() == operators.Index && len(call.Args()) == 2 && isClaims(call.Args()[0]) &&
				call.Args()[1].Kind() == ast.LiteralKind {
				if name, ok := call.Args()[1].AsLiteral().Value().(string); ok {
					explained[call.Args()[0].ID()] = true
					u.claims[name] = true
				}
			}
		case ast.IdentKind:
			if e.AsIdent() == "caller" && !explained[e.ID()] {
				u.subject, u.teams, u.scopes, u.allClaims = true, true, true, true
			}
		}
	})
	ast.PreOrderVisit(checked.NativeRep().Expr(), visit)
	return u
}

func (u *uses) field(name string, explained bool) {
	switch name {
	case "subject", "issuer":
		u.subject = true
	case "teams":
		u.teams = true
	case "scopes":
		u.scopes = true
	case "claims":
		u.allClaims = u.allClaims || !explained
	}
}

func isIdent(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}

func isClaims(e ast.Expr) bool {
	return e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == "claims" && isIdent(e.AsSelect().Operand(), "caller")
}
