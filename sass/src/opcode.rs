//! The operations: one variant per row of the operation tables.

use std::fmt;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An operation. A mnemonic that covers several encodings with one meaning is one variant; `IMAD`,
        /// `IMAD.WIDE` and `IMAD.HI` are three, because they take operands of different widths.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Opcode {
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Opcode {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name as the disassembler prints it, without modifiers.
            pub const fn mnemonic(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

opcodes! {
    // Moves and selects.
    Mov = "MOV", Sel = "SEL", Fsel = "FSEL", Prmt = "PRMT", P2r = "P2R", R2p = "R2P", Cs2r = "CS2R", S2r = "S2R",
    Plop3 = "PLOP3",
    // Integer.
    Iadd3 = "IADD3", Imad = "IMAD", ImadWide = "IMAD.WIDE", ImadHi = "IMAD.HI", Idp = "IDP", Lea = "LEA", Lop3 = "LOP3",
    Shf = "SHF", Sgxt = "SGXT", Bmsk = "BMSK", Iabs = "IABS", Imnmx = "IMNMX", Isetp = "ISETP", Vabsdiff = "VABSDIFF",
    Vabsdiff4 = "VABSDIFF4", Flo = "FLO", Brev = "BREV", Popc = "POPC", I2i = "I2I", I2ip = "I2IP", Clmad = "CLMAD",
    Viadd = "VIADD", Vimnmx = "VIMNMX", Vimnmx3 = "VIMNMX3", Viaddmnmx = "VIADDMNMX",
    // Single precision.
    Fadd = "FADD", Fmul = "FMUL", Ffma = "FFMA", Fmnmx = "FMNMX", Fsetp = "FSETP", Fset = "FSET", Fchk = "FCHK",
    Mufu = "MUFU", Fswzadd = "FSWZADD",
    // Double precision.
    Dadd = "DADD", Dmul = "DMUL", Dfma = "DFMA", Dsetp = "DSETP",
    // Pairs of half precision.
    Hadd2 = "HADD2", Hmul2 = "HMUL2", Hfma2 = "HFMA2", Hfma2Mma = "HFMA2.MMA", Hmnmx2 = "HMNMX2", Hset2 = "HSET2",
    Hsetp2 = "HSETP2",
    // Conversions.
    F2i = "F2I", I2f = "I2F", I2fp = "I2FP", F2f = "F2F", Frnd = "FRND", F2fp = "F2FP", F2ip = "F2IP",
    // Matrix.
    Hmma = "HMMA", Imma = "IMMA", Bmma = "BMMA", Dmma = "DMMA", Qmma = "QMMA", Movm = "MOVM",
    Hgmma = "HGMMA", Igmma = "IGMMA", Bgmma = "BGMMA", Qgmma = "QGMMA", Warpgroup = "WARPGROUP",
    // Memory.
    Ldg = "LDG", Ld = "LD", Stg = "STG", St = "ST", Lds = "LDS", Sts = "STS", Ldl = "LDL", Stl = "STL", Ldc = "LDC",
    Ldsm = "LDSM", Ldgsts = "LDGSTS", Ldgdepbar = "LDGDEPBAR", Depbar = "DEPBAR", Arrives = "ARRIVES", Qspc = "QSPC",
    Atomg = "ATOMG", AtomgCas = "ATOMG.CAS", Atom = "ATOM", AtomCas = "ATOM.CAS", Red = "RED", Redg = "REDG", Atoms = "ATOMS",
    AtomsCas = "ATOMS.CAS", AtomsCount = "ATOMS.POPC",
    Membar = "MEMBAR", Errbar = "ERRBAR", Cctl = "CCTL", Cgaerrbar = "CGAERRBAR", Fence = "FENCE", Syncs = "SYNCS",
    Ublkcp = "UBLKCP", Ublkpf = "UBLKPF", Utmacmdflush = "UTMACMDFLUSH",
    Usetmaxreg = "USETMAXREG",
    // Warp.
    Shfl = "SHFL", Vote = "VOTE", Match = "MATCH", Redux = "REDUX", R2ur = "R2UR", B2r = "B2R",
    Elect = "ELECT",
    // Control flow.
    Bra = "BRA", Brx = "BRX", CallRel = "CALL.REL", CallAbs = "CALL.ABS", Ret = "RET", Exit = "EXIT", Bpt = "BPT", Nop = "NOP",
    Pmtrig = "PMTRIG", Yield = "YIELD", Nanosleep = "NANOSLEEP", Bmov = "BMOV", Bssy = "BSSY", Bsync = "BSYNC",
    Break = "BREAK", Warpsync = "WARPSYNC", Endcollective = "ENDCOLLECTIVE", Bar = "BAR", Lepc = "LEPC", UcgabarArv = "UCGABAR_ARV",
    UcgabarWait = "UCGABAR_WAIT", Jmp = "JMP",
    Jmx = "JMX", Brxu = "BRXU", Jmxu = "JMXU", Kill = "KILL", Rpcmov = "RPCMOV",
    Acqbulk = "ACQBULK", Preexit = "PREEXIT",
    // Uniform datapath.
    Umov = "UMOV", Usel = "USEL", Uisetp = "UISETP", Uiadd3 = "UIADD3", Uiadd3B64 = "UIADD3.64", Ulea = "ULEA", Ulop3 = "ULOP3", Uprmt = "UPRMT",
    Ushf = "USHF", Usgxt = "USGXT", Ubmsk = "UBMSK", Uflo = "UFLO", Ubrev = "UBREV", Upopc = "UPOPC", Uplop3 = "UPLOP3",
    Uimad = "UIMAD", UimadWide = "UIMAD.WIDE", Uldc = "ULDC", Up2ur = "UP2UR", Ur2up = "UR2UP", Voteu = "VOTEU", S2ur = "S2UR",
    Uclea = "UCLEA", Uf2fp = "UF2FP",
    // Textures, surfaces, graphics and system; of the last two most are named only.
    Al2p = "AL2P", Ald = "ALD", Ast = "AST", Cctll = "CCTLL", Cctlt = "CCTLT", Csmtest = "CSMTEST", Footprint = "FOOTPRINT",
    Getlmembase = "GETLMEMBASE", Ipa = "IPA", Isberd = "ISBERD", Isbewr = "ISBEWR", Ldtram = "LDTRAM", Out = "OUT",
    Pixld = "PIXLD", Setctaid = "SETCTAID", Setlmembase = "SETLMEMBASE", Suatom = "SUATOM", Suld = "SULD",
    Suquery = "SUQUERY", Sured = "SURED", Sust = "SUST", Tex = "TEX", Tld = "TLD", Tld4 = "TLD4", Tmml = "TMML",
    Txd = "TXD", Txq = "TXQ",
}

/// The mnemonic.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mnemonic())
    }
}
