//! Templates of conversations, in the idioms of published ones. Expected texts are those of jinja2 with the
//! options of `transformers`.

use ga10b_llm::Tokenizer;
use ga10b_llm::chat::{Message, Template};
use ga10b_llm::gguf::{Array, Gguf, Value, Writer};
use proptest::prelude::*;
use serde_json::json;

fn render(source: &str, messages: &[Message], answer: bool) -> Result<String, String> {
    let template = Template::new(source, "<s>", "</s>").map_err(|e| e.to_string())?;
    template.render(messages, answer).map_err(|e| e.to_string())
}

fn talk() -> Vec<Message> {
    let of = Message::new;
    vec![of("system", "Be brief."), of("user", "Hi  "), of("assistant", "Hello."), of("user", "Why?")]
}

const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + \
                      '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

#[test]
fn roles_are_written_as_they_are() {
    let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi  <|im_end|>\n\
                    <|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n";
    assert_eq!(render(CHATML, &talk(), false).as_deref(), Ok(expected));
    let opened = format!("{expected}<|im_start|>assistant\n");
    assert_eq!(render(CHATML, &talk(), true), Ok(opened));
}

#[test]
fn a_template_gets_tools_calls_and_other_variables() {
    let source = "{% for tool in tools %}[{{ tool.function.name }}]{% endfor %}{% for m in messages %}{{ m.role }}:\
                  {{ m.content }}{% for call in m.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %};\
                  {% endfor %}{{ style }}{% if add_generation_prompt %}>{% endif %}";
    let template = Template::new(source, "", "").expect("a template");
    assert!(["tools", "style", "messages"].iter().all(|name| template.takes(name)));
    assert!(!template.takes("reasoning_effort") && !template.takes("call"));
    assert_eq!(template.source(), source);
    let map = |value: serde_json::Value| value.as_object().cloned().expect("an object");
    let calls = map(json!({"tool_calls": [{"function": {"name": "go", "arguments": {"place": "here"}}}]}));
    let messages = [Message::new("user", "Hi"), Message { more: calls, ..Message::new("assistant", "") }];
    let more = map(json!({"tools": [{"function": {"name": "go"}}], "style": "!", "messages": []}));
    let text = template.render_with(&messages, true, &more).expect("a text");
    assert_eq!(text, "[go]user:Hi;assistant:{\"place\": \"here\"};!>");
    assert_eq!(template.render(&messages[..1], false).expect("a text"), "user:Hi;");
}

#[test]
fn blocks_take_their_line_ends_and_indentation_with_them() {
    let source = "{%- set loop_messages = messages %}\n{% for m in loop_messages %}\n    {% set content = '<' + \
                  m['role'] + '>\\n' + m['content'] | trim + '|' %}\n    {% if loop.index0 == 0 %}\n        \
                  {% set content = bos_token + content %}\n    {% endif %}\n{{ content }}\n{% endfor %}\n";
    let expected = "<s><system>\nBe brief.|\n<user>\nHi|\n<assistant>\nHello.|\n<user>\nWhy?|\n";
    assert_eq!(render(source, &talk(), false).as_deref(), Ok(expected));
}

#[test]
fn a_template_refuses_in_its_own_words() {
    let source = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}\
                  {% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\
                  {{ raise_exception('Roles must alternate') }}{% endif %}[{{ m.content.strip() }}]{% endfor %}";
    assert!(render(source, &talk(), true).expect_err("a system").contains("System role not supported"));
    let twice = [Message::new("user", "a"), Message::new("user", "b")];
    assert!(render(source, &twice, true).expect_err("twice").contains("Roles must alternate"));
    assert_eq!(render(source, &talk()[1..], true).as_deref(), Ok("[Hi][Hello.][Why?]"));
    let template = Template::new(source, "", "").expect("a template");
    assert!(!template.takes_system());
    assert!(Template::new(CHATML, "", "").expect("a template").takes_system());
}

#[test]
fn what_transformers_offers_is_there() {
    let first = |source: &str| render(source, &talk(), false);
    assert_eq!(
        first("{{ {'b': [1, 2.5, 'é<'], 'a': none} | tojson }}").as_deref(),
        Ok("{\"b\": [1, 2.5, \"é<\"], \"a\": null}")
    );
    assert_eq!(first("{{ {'a': [1]} | tojson(indent=2) }}").as_deref(), Ok("{\n  \"a\": [\n    1\n  ]\n}"));
    assert_eq!(
        first("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role[0] }}{% endfor %}")
            .as_deref(),
        Ok("sua")
    );
    assert_eq!(first("{{ messages[1].content.rstrip() }}{{ eos_token }}").as_deref(), Ok("Hi</s>"));
    assert_eq!(first("{{ messages[0].content.split(' ')[-1].upper() }}").as_deref(), Ok("BRIEF."));
    assert_eq!(first("{{ messages[2]['content'].startswith('He') }}").as_deref(), Ok("True"));
    assert_eq!(
        first(
            "{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}"
        )
        .as_deref(),
        Ok("4")
    );
    assert_eq!(
        first("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages|length) }}").as_deref(),
        Ok("<4>")
    );
    assert_eq!(first("{% if nothing is defined %}something{% else %}none{% endif %}").as_deref(), Ok("none"));
    let year = first("{{ strftime_now('%Y') }}").expect("a year");
    assert!(year.parse::<u32>().is_ok_and(|y| y >= 2025), "{year}");
}

#[test]
fn what_is_no_template_or_never_ends_is_an_error() {
    assert!(render("{% for %}", &talk(), false).expect_err("syntax").contains("template"));
    assert!(render("{% include '/etc/passwd' %}", &talk(), false).is_err());
    assert!(render("{{ strftime_now('%!') }}", &talk(), false).is_err());
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{{ '' }}{% endfor %}{% endfor %}";
    assert!(render(endless, &talk(), false).expect_err("fuel").contains("fuel"));
}

#[test]
fn deep_templates_and_long_texts_are_errors() {
    let deep = format!("{{{{ {}1 }}}}", "-".repeat(60_000));
    assert_eq!(render(&deep, &talk(), false).as_deref(), Ok("1"));
    let chain = format!("{{{{ 1{} }}}}", "+1".repeat(30_000));
    assert_eq!(render(&chain, &talk(), false).as_deref(), Ok("30001"));
    assert!(render(&"x".repeat(70_000), &talk(), false).expect_err("long").contains("bytes"));
    let endless = "{% for i in range(50000) %}{{ messages[0].content * 2000 }}{% endfor %}";
    assert!(render(endless, &talk(), false).is_err());
    let nested = "{% set ns=namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x=[ns.x] %}{% endfor %}x";
    assert_eq!(render(nested, &talk(), false).as_deref(), Ok("x"));
}

#[test]
fn tools_that_are_not_given_are_none() {
    let source = "{% if tools is not none %}[{{ tools | tojson }}]{% endif %}{{ documents is none }}";
    assert_eq!(render(source, &talk(), false).as_deref(), Ok("True"));
    let escaped = "{{ messages | tojson(ensure_ascii=false) }}";
    assert!(Template::new(escaped, "", "").expect("a template").takes_system());
}

#[test]
fn methods_and_marks_that_published_templates_use() {
    let parts = |call: &str| render(&format!("{{{{ {call} | tojson }}}}"), &[], false);
    for (call, python) in [
        ("'a b  c'.rsplit()", r#"["a", "b", "c"]"#),
        ("'  a b '.rsplit()", r#"["a", "b"]"#),
        ("'a,b,,c'.rsplit(',', 1)", r#"["a,b,", "c"]"#),
        ("'a,b,,c'.rsplit(',')", r#"["a", "b", "", "c"]"#),
        ("'  a b c '.rsplit(none, 1)", r#"["  a b", "c"]"#),
        ("''.rsplit()", "[]"),
        ("''.rsplit(',')", r#"[""]"#),
        ("' x '.rsplit(maxsplit=0)", r#"[" x"]"#),
        ("'a</t>b</t>c'.rsplit('</t>', maxsplit=1)", r#"["a</t>b", "c"]"#),
        ("'think: x'.removeprefix('think: ')", r#""x""#),
        ("'x.'.removesuffix('!')", r#""x.""#),
    ] {
        assert_eq!(parts(call).as_deref(), Ok(python), "{call}");
    }
    assert!(parts("'a'.rsplit('')").is_err());
    let marked =
        "{%- for m in messages %}{%- generation -%} {{ m.content }} {%- endgeneration %} |\n{% endfor %}";
    assert_eq!(render(marked, &talk()[2..], false).as_deref(), Ok("Hello. |\nWhy? |\n"));
}

#[test]
fn a_file_gives_template_and_names() {
    let mut writer = Writer::new();
    let tokens = ["a", "<bos>", "<end>", "<", ">", "b", "o", "s", "e", "n", "d"].map(String::from).to_vec();
    writer.key("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.key("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    writer.key(
        "tokenizer.ggml.token_type",
        Value::Array(Array::I32([1, 3, 3].into_iter().chain([1; 8]).collect())),
    );
    writer.key("tokenizer.ggml.merges", Value::Array(Array::String(vec![])));
    writer.key("tokenizer.ggml.bos_token_id", Value::U32(1));
    writer.key("tokenizer.ggml.eos_token_id", Value::U32(2));
    writer.key(
        "tokenizer.chat_template",
        Value::String("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}".into()),
    );
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    let gguf = Gguf::from_bytes(bytes).expect("valid");
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let template = Template::from_gguf(&gguf, &tokenizer).expect("usable").expect("there is one");
    let text = template.render(&[Message::new("user", "aa")], true).expect("renders");
    assert_eq!(text, "<bos>aa<end>");
    assert_eq!(tokenizer.encode(&text).expect("encodes"), [1, 0, 0, 2]);
}

proptest! {
    #[test]
    fn any_text_is_written_as_it_is(content in "\\PC*") {
        let text = render(CHATML, &[Message::new("user", content.clone())], false);
        prop_assert_eq!(text, Ok(format!("<|im_start|>user\n{content}<|im_end|>\n")));
    }

    #[test]
    fn no_template_is_a_panic(source in "(\\{[%{] ?(if|for|set|endif|endfor|messages|raise_exception|m|in|x|\\(|\\)|'|\\||tojson|=|\\.| )* ?[%}]\\}|[a-z ])*") {
        let _ = render(&source, &talk(), true);
    }
}
